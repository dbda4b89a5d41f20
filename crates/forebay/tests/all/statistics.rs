//! Is what clients did what statistics say, live and later, and does it stay?
//!
//! Method: an NBD client with a known number of requests; a WebSocket and HTTP in plain bytes, against the real daemon.

use crate::common::{Api, Daemon, Nbd, PATIENCE, Place};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const MIB: u64 = 1 << 20;

/// A daemon with a pool and a volume `tank/a`, and a token.
fn set_up(place: &Place) -> (Daemon, String) {
    let daemon = Daemon::start(place);
    let [a, b] = place.disks();
    place.run(&["pool", "create", "tank", "--layout", "mirror", &a, &b]).expect(0);
    place.run(&["volume", "create", "tank/a", "--size", "64M"]).expect(0);
    (daemon, token(place, "admin"))
}

fn token(place: &Place, role: &str) -> String {
    place.json(&["token", "create", role, "--role", role])["secret"].as_str().unwrap().to_string()
}

fn ask(api: &Api<'_>, expression: &str, more: &str) -> Value {
    let expression = expression.replace('[', "%5B").replace(']', "%5D").replace('=', "%3D");
    let reply = api.get(&format!("/api/v1/statistics/query?expression={expression}{more}"));
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

/// How much of something there was, of steps of a second.
fn sum(values: &Value) -> f64 {
    values.as_array().unwrap().iter().filter_map(Value::as_f64).sum()
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn work(daemon: &Daemon) {
    let mut client = Nbd::open(&daemon.nbd, "tank/a");
    (0..50).for_each(|nth| client.write(nth * 8192, &[nth as u8; 8192]));
    (0..30).for_each(|nth| drop(client.read(nth * 4096, 4096)));
}

#[test]
fn totals_breakdowns_and_heat_maps_have_every_request() {
    let place = Place::new();
    let (daemon, secret) = set_up(&place);
    let api = daemon.api(&secret);
    work(&daemon);
    let all = until("the requests", || {
        let answer = ask(&api, "nbd.ops[op]", "&from=-120&to=0&step=1");
        let total = sum(&answer["total"]["values"]);
        assert!(total <= 80.0, "{answer}");
        (total == 80.0).then_some(answer)
    });
    assert_eq!((&all["kind"], &all["unit"]), (&json!("counter"), &json!("per-second")));
    let (from, to) = (all["from_unix_s"].as_u64().unwrap(), all["to_unix_s"].as_u64().unwrap());
    let more = format!("&from={from}&to={to}&step=1");
    let by_op = |answer: &Value, op: &str| {
        let lines = answer["lines"].as_array().unwrap();
        lines.iter().find(|line| line["labels"]["op"] == op).map(|line| sum(&line["values"]))
    };
    assert_eq!((by_op(&all, "write"), by_op(&all, "read")), (Some(50.0), Some(30.0)), "{all}");
    let bytes = ask(&api, "nbd.bytes[op]", &more);
    assert_eq!(by_op(&bytes, "write"), Some(50.0 * 8192.0));
    assert_eq!(by_op(&bytes, "read"), Some(30.0 * 4096.0));
    let who = ask(&api, "nbd.ops[client][volume]", &more);
    let labels = json!({"client": "127.0.0.1", "volume": "tank/a"});
    assert_eq!((&who["lines"][0]["labels"], sum(&who["lines"][0]["values"])), (&labels, 80.0));
    let heat = ask(&api, "nbd.ops[latency][op=write]", &more);
    let columns = heat["heatmap"]["columns"].as_array().unwrap();
    assert_eq!(columns.iter().map(sum).sum::<f64>(), 50.0, "{heat}");
    let sizes = ask(&api, "nbd.size", &more);
    let median = sizes["lines"][0]["mean"].as_f64().unwrap();
    assert!(
        sizes["lines"][0]["labels"]["quantile"] == "p50" && (8192.0..9216.1).contains(&median),
        "{sizes}"
    );

    // A minute's step tells the same, and nobody else did anything.
    let minutes = ask(&api, "nbd.ops[client!=127.0.0.1]", &format!("&from={from}&to={to}&step=60"));
    assert_eq!(sum(&minutes["total"]["values"]), 0.0);

    let text = api.get("/metrics");
    assert_eq!(text.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let writes = text.body.lines().find(|line| {
        line.starts_with("forebay_nbd_ops_total{") && line.contains("op=\"write\"") && line.ends_with(" 50")
    });
    assert!(writes.is_some() && !text.body.contains("127.0.0.1"), "{}", text.body);
    daemon.http("GET /metrics HTTP/1.1", b"").problem(401, "unauthenticated");

    for (query, field) in [
        ("", "expression"),
        ("?expression=nbd.opps", "expression"),
        ("?expression=nbd.ops&limit=101", "limit"),
        ("?expression=nbd.ops&from=0&to=-10", "to"),
        ("?expression=nbd.ops&step=0", "step"),
        ("?expression=nbd.ops&from=-20000&step=1", "step"),
        ("?expression=nbd.ops&stepp=1", "stepp"),
    ] {
        let problem = api.get(&format!("/api/v1/statistics/query{query}")).problem(400, "invalid");
        assert_eq!(problem["field"], field, "{query}: {problem}");
        assert!(problem["remedy"].is_string());
    }
    let listed = api.get("/api/v1/statistics").json();
    assert!(listed["items"].as_array().unwrap().iter().any(|one| one["name"] == "iscsi.latency"));

    // Killed, it has all of it again.
    daemon.kill();
    let daemon = Daemon::start(&place);
    let again = ask(&daemon.api(&secret), "nbd.ops[op]", &more);
    assert_eq!((by_op(&again, "write"), by_op(&again, "read")), (Some(50.0), Some(30.0)), "{again}");
    daemon.stop();
}

/// The least of a WebSocket (RFC 6455).
struct Socket {
    reader: BufReader<TcpStream>,
}

impl Socket {
    fn open(daemon: &Daemon, headers: &str) -> Result<Socket, String> {
        let mut stream = TcpStream::connect(&daemon.http).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "GET /api/v1/statistics/stream HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n",
            daemon.http
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut status = String::new();
        reader.read_line(&mut status).unwrap();
        let mut line = status.clone();
        while !line.trim().is_empty() {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        if status.starts_with("HTTP/1.1 101") { Ok(Socket { reader }) } else { Err(status) }
    }

    fn send(&mut self, text: &str) {
        // A client masks; with zeros the text stays as it is.
        let mut frame = vec![0x81];
        match text.len() {
            len @ 0..126 => frame.push(0x80 | len as u8),
            len => {
                frame.push(0x80 | 126);
                frame.extend((len as u16).to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(text.bytes());
        self.reader.get_mut().write_all(&frame).unwrap();
    }

    /// The next text; `None` when the server closes.
    fn next(&mut self) -> Option<Value> {
        loop {
            let mut head = [0; 2];
            self.reader.read_exact(&mut head).ok()?;
            let mut len = u64::from(head[1]);
            if len == 126 {
                let mut wide = [0; 2];
                self.reader.read_exact(&mut wide).unwrap();
                len = u16::from_be_bytes(wide).into();
            }
            let mut payload = vec![0; len as usize];
            self.reader.read_exact(&mut payload).unwrap();
            match head[0] {
                0x81 => return Some(serde_json::from_slice(&payload).unwrap()),
                0x88 => return None,
                // A ping.
                _ => {}
            }
        }
    }

    fn until(&mut self, is_right: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "it did not come");
            let message = self.next().expect("the stream goes on");
            if is_right(&message) {
                return message;
            }
        }
    }
}

#[test]
fn a_stream_tells_each_second_of_what_was_asked_for() {
    let place = Place::new();
    let (daemon, _) = set_up(&place);
    let bearer = format!("Authorization: Bearer {}\r\n", token(&place, "viewer"));
    let mut socket = Socket::open(&daemon, &bearer).unwrap();
    socket.send(r#"{"subscribe": 7, "expression": "nbd.ops[client]", "limit": 3}"#);
    socket.send(r#"{"subscribe": 8, "expression": "observer.rows"}"#);
    socket.send(r#"{"subscribe": 9, "expression": "nbd.ops[latency]"}"#);
    let made = |id: u64| move |message: &Value| message["id"] == id && message.get("kind").is_some();
    assert_eq!(socket.until(made(7)), json!({"id": 7, "kind": "counter", "unit": "per-second"}));
    socket.until(made(9));
    let rows = |socket: &mut Socket| {
        socket.until(|message| message["id"] == 8 && message.get("at_unix_s").is_some())
    };
    let (one, two) = (rows(&mut socket), rows(&mut socket));
    assert_eq!(two["at_unix_s"].as_u64().unwrap(), one["at_unix_s"].as_u64().unwrap() + 1, "{one} {two}");
    assert!(two["lines"][0]["value"].as_f64().unwrap() > 0.0 && two.get("missed").is_none(), "{two}");

    let mut client = Nbd::open(&daemon.nbd, "tank/a");
    client.write(MIB, &[1; 4096]);
    let told = socket.until(|message| message["id"] == 7 && message["total"].as_f64() > Some(0.0));
    assert_eq!((&told["total"], &told["lines"][0]["labels"]["client"]), (&json!(1.0), &json!("127.0.0.1")));
    let map = socket.until(|message| message["id"] == 9 && message.get("at_unix_s").is_some());
    assert!(map["bounds"].is_array() && map["column"].is_array() && map.get("lines").is_none(), "{map}");

    // Mistakes end nothing.
    socket.send(r#"{"subscribe": 10, "expression": "nbd.nothing"}"#);
    let problem = socket.until(|message| message["id"] == 10);
    assert_eq!(
        (&problem["problem"]["code"], &problem["problem"]["field"]),
        (&json!("invalid"), &json!("expression"))
    );
    socket.send("{nonsense");
    let problem = socket.until(|message| message.get("id").is_none());
    assert_eq!(problem["problem"]["code"], "invalid");
    socket.send(r#"{"unsubscribe": 8}"#);
    (100..161).for_each(|id| socket.send(&format!(r#"{{"subscribe": {id}, "expression": "cpu.used"}}"#)));
    (161..164).for_each(|id| socket.send(&format!(r#"{{"subscribe": {id}, "expression": "cpu.used"}}"#)));
    let refused = socket.until(|message| message["problem"]["code"] == "busy");
    assert_eq!(refused["id"], 162, "two there were, and 62 came");

    // Strangers, pages of others, and what is no WebSocket.
    assert!(Socket::open(&daemon, "").err().unwrap().contains("401"));
    let origin = format!("{bearer}Origin: http://evil.example\r\n");
    assert!(Socket::open(&daemon, &origin).err().unwrap().contains("403"));
    let ours = format!("{bearer}Origin: http://{}\r\n", daemon.http);
    drop(Socket::open(&daemon, &ours).unwrap());
    let head = format!("GET /api/v1/statistics/stream HTTP/1.1\r\n{}", bearer.trim_end());
    assert_eq!(daemon.http(&head, b"").status, 426);

    // Whoever is no longer admitted hears no more.
    place.run(&["token", "delete", "viewer"]).expect(0);
    let ended = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    while let Some(message) = socket.next() {
        assert!(message["at_unix_s"].as_u64().unwrap_or(0) <= ended, "it goes on: {message}");
    }
    daemon.stop();
}

#[test]
fn who_does_not_read_holds_up_nobody_and_fills_no_memory() {
    let place = Place::new();
    let (daemon, _) = set_up(&place);
    let bearer = format!("Authorization: Bearer {}\r\n", token(&place, "viewer"));
    let heavy = |socket: &mut Socket| {
        for id in 0..64 {
            let name = ["nbd.ops[latency]", "disk.latency[device][op]", "cpu.used[part]"][id % 3];
            socket.send(&format!(r#"{{"subscribe": {id}, "expression": "{name}", "limit": 100}}"#));
        }
    };
    let mut reader = Socket::open(&daemon, &bearer).unwrap();
    reader.send(r#"{"subscribe": 1, "expression": "observer.rows"}"#);
    let second = |socket: &mut Socket| socket.until(|message| message.get("at_unix_s").is_some());
    let first = second(&mut reader)["at_unix_s"].as_u64().unwrap();
    let silent: Vec<Socket> = (0..30)
        .map(|_| {
            let mut socket = Socket::open(&daemon, &bearer).unwrap();
            heavy(&mut socket);
            socket
        })
        .collect();
    second(&mut reader);
    let before = daemon.resident();
    for nth in 2..8 {
        work(&daemon);
        let told = second(&mut reader);
        assert_eq!(told["at_unix_s"].as_u64(), Some(first + nth), "a second each second: {told}");
    }
    let grown = daemon.resident().saturating_sub(before);
    assert!(grown < 48 * MIB, "{grown} bytes for those who do not read");
    drop(silent);
    daemon.stop();
}

#[test]
fn what_is_switched_off_is_missing_and_comes_back() {
    let place = Place::new();
    let (daemon, secret) = set_up(&place);
    let api = daemon.api(&secret);
    let switch = |on: bool| api.call("PATCH", "/api/v1/server", "", Some(json!({"statistics": on})));
    let viewer = token(&place, "viewer");
    daemon.api(&viewer).call("PATCH", "/api/v1/server", "", Some(json!({}))).problem(403, "forbidden");
    assert_eq!(switch(false).json()["statistics"], false);
    assert_eq!(api.get("/api/v1/server").json()["statistics"], false);
    work(&daemon);
    let kept =
        |answer: &Value| answer["total"]["values"].as_array().unwrap().iter().flat_map(Value::as_f64).count();
    let quiet = || ask(&api, "observer.rows", "&from=-2&to=0&step=1");
    until("seconds that are missing", || (kept(&quiet()) == 0).then_some(()));
    assert_eq!(sum(&ask(&api, "nbd.ops", "&from=-60&to=0&step=1")["total"]["values"]), 0.0);
    assert!(place.run(&["stat", "on"]).expect(0).out.contains("on"));
    until("seconds again", || (kept(&quiet()) > 0).then_some(()));
    work(&daemon);
    let all = || sum(&ask(&api, "nbd.ops", "&from=-60&to=0&step=1")["total"]["values"]);
    until("the requests after that, and none of those before", || (all() == 80.0).then_some(()));
    daemon.stop();
}

#[test]
fn a_worksheet_keeps_its_interval_and_gives_it_up() {
    let place = Place::new();
    let (daemon, secret) = set_up(&place);
    let api = daemon.api(&secret);
    work(&daemon);
    let now = until("the requests", || {
        let answer = ask(&api, "nbd.ops", "&from=-120&to=0&step=1");
        (sum(&answer["total"]["values"]) == 80.0).then(|| answer["to_unix_s"].as_u64().unwrap())
    });
    let spec = |pinned: bool| {
        let graphs = json!([
            {"expression": "nbd.ops[client]", "title": "Who, and how much"},
            {"expression": "nbd.ops[latency]", "limit": 5},
        ]);
        json!({"graphs": graphs, "from_unix_s": now - 120, "to_unix_s": now, "pinned": pinned})
    };
    // The interval ends now, at the earliest.
    until("its end", || (ask(&api, "cpu.used", "")["to_unix_s"].as_u64().unwrap() > now).then_some(()));
    let made = api.post("/api/v1/worksheets", json!({"name": "Why? =1", "spec": spec(true)}));
    assert_eq!(made.status, 201, "{made:?}");
    let path = made.header("location").unwrap().to_string();
    let id = made.json()["id"].as_str().unwrap().to_string();
    assert_eq!(path, format!("/api/v1/worksheets/{id}"));
    let pins = place.data().join("analytics/pins");
    assert!(pins.join(&id).is_dir());
    api.post("/api/v1/worksheets", json!({"name": "Why? =1", "spec": spec(false)})).problem(409, "conflict");
    let mut wrong = spec(false);
    wrong["graphs"][1]["expression"] = json!("nbd.ops[");
    let problem = api.post("/api/v1/worksheets", json!({"name": "x", "spec": wrong})).problem(400, "invalid");
    assert_eq!(problem["field"], "spec.graphs[1].expression");
    let mut future = spec(true);
    future["to_unix_s"] = json!(now + 3600);
    let problem =
        api.post("/api/v1/worksheets", json!({"name": "x", "spec": future})).problem(400, "invalid");
    assert_eq!(problem["field"], "spec.to_unix_s");
    daemon.api(&token(&place, "viewer")).post("/api/v1/worksheets", json!({})).problem(403, "forbidden");

    let export = |format: &str| {
        let head = format!("GET {path}/export?format={format} HTTP/1.0\r\nAuthorization: Bearer {secret}");
        let reply = daemon.http(&head, b"");
        assert_eq!(reply.status, 200, "{reply:?}");
        reply
    };
    let file = export("json");
    assert_eq!(file.header("content-disposition"), Some("attachment; filename=\"Why---1.json\""));
    let graphs = file.json()["graphs"].clone();
    assert_eq!(sum(&graphs[0]["lines"][0]["values"]), 80.0, "{graphs}");
    let table = export("csv").body;
    let ops = table.lines().filter(|line| line.starts_with("1,nbd.ops[client],per-second,"));
    let values = ops.filter_map(|line| line.rsplit(',').next()?.parse::<f64>().ok());
    assert_eq!(values.sum::<f64>(), 80.0, "{table}");
    assert!(table.starts_with("graph,expression,unit,at_unix_s,line,value\n") && table.contains(",latency="));
    api.get(&format!("{path}/export?format=xml")).problem(400, "invalid");

    // A change by somebody who saw an older one, and one that lets go.
    let tag = made.header("etag").unwrap().to_string();
    let named = api.call("PATCH", &path, &format!("If-Match: {tag}"), Some(json!({"name": "Because"})));
    assert_eq!((named.status, &named.json()["name"]), (200, &json!("Because")));
    api.call("PATCH", &path, &format!("If-Match: {tag}"), Some(json!({"name": "x"})))
        .problem(412, "precondition_failed");

    daemon.kill();
    std::fs::create_dir(pins.join("00000000-0000-0000-0000-000000000000")).unwrap();
    let daemon = Daemon::start(&place);
    let api = daemon.api(&secret);
    assert_eq!(api.get(&path).json()["spec"], spec(true));
    let kept = |pins: &std::path::Path| std::fs::read_dir(pins).unwrap().count();
    assert_eq!((kept(&pins), pins.join(&id).is_dir()), (1, true), "what belongs to nobody is gone");
    assert_eq!(api.call("PATCH", &path, "", Some(json!({"spec": spec(false)}))).status, 200);
    assert_eq!(kept(&pins), 0);
    assert_eq!(api.call("PATCH", &path, "", Some(json!({"spec": spec(true)}))).status, 200);
    assert_eq!(kept(&pins), 1);
    assert_eq!(api.call("DELETE", "/api/v1/worksheets/Because", "", None).status, 204);
    assert_eq!((kept(&pins), api.get(&path).status), (0, 404));
    daemon.stop();
}

/// Goal: a threshold that could never be crossed is refused: a limit of another unit, an object that does not exist.
#[test]
fn a_threshold_has_the_unit_of_its_statistic_and_objects_that_exist() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    let create = |words: &[&str]| place.run(&[&["threshold", "create", "limit"], words].concat());
    create(&["pool.free", "--below", "10%"]).expect(2).says("bytes");
    create(&["nbd.ops", "--above", "50ms"]).expect(2).says("a count per second");
    create(&["disk.latency", "--above", "50"]).expect(2).says("like 10ms");
    create(&["volume.ops[volume=tank/nope]", "--above", "5"]).expect(3).says("forebay volume list");
    create(&["disk.busy", "--above", "90%"]).expect(0);
    place.run(&["threshold", "set", "limit", "--above", "900"]).expect(2).says("like 90%");
    assert_eq!(place.json(&["threshold", "show", "limit"])["spec"]["above"], 900.0);
    daemon.stop();
}
