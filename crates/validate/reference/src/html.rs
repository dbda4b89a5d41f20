//! Reports as one page of HTML that needs nothing else.

use crate::live::{ErrorReport, LiveReport};
use crate::plot::{Line, plot};
use crate::report::{CaseReport, ClientReport, FigureReport, Report, percents};
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c;background:#fff}\
table{border-collapse:collapse;margin:.5rem 0 1.5rem;width:100%}th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #ccc}\
th:first-child,td:first-child{text-align:left}caption{text-align:left;color:#555}.missed{font-weight:bold;color:#a02020}\
pre{overflow:auto;padding:1rem;background:#f3f3f3}.trap{border-left:4px solid #a02020;padding-left:.6rem}\
svg{max-width:40rem;width:100%;font-size:11px;fill:currentColor;display:block;margin:.5rem 0}svg path{fill:none;stroke-width:1.6}\
.axis path{stroke:#bbb;stroke-width:.6}.line0 path{stroke:#1f6fb5}.line1 path{stroke:#d1661a;stroke-dasharray:7 3}.line2 path{stroke:#3d8b37;stroke-dasharray:2 3}\
.line3 path{stroke:#8250b0;stroke-dasharray:9 3 2 3}.goal path{stroke:#a02020;stroke-dasharray:4 4;stroke-width:1}\
@media(prefers-color-scheme:dark){body{color:#e4e4e4;background:#161616}caption{color:#aaa}pre{background:#242424}th,td{border-color:#444}.missed{color:#ff8a8a}}";

fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut safe, character| {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
        safe
    })
}

/// A page for these reports.
pub fn html(reports: &[Report]) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Forebay: validation</title><style>{STYLE}</style></head><body>\n"
    );
    reports.iter().enumerate().for_each(|(nth, report)| add_report(&mut html, nth, report));
    html.push_str("</body></html>\n");
    html
}

fn add_report(html: &mut String, number: usize, report: &Report) {
    let configuration = &report.configuration;
    let _ = write!(
        html,
        "<h1>{}: {}</h1>\n<p>{}</p>\n<h2>Verdict</h2>\n",
        escaped(&configuration.name),
        escaped(&configuration.title),
        escaped(&configuration.source)
    );
    if let Some((verdict, reasons)) = report.likeness() {
        let reasons = reasons.iter().map(|reason| escaped(reason)).collect::<Vec<_>>().join(" ");
        let _ = writeln!(html, "<p>The comparison is <b>{verdict}</b>. {reasons}</p>");
    }
    for trap in &configuration.traps {
        let _ = writeln!(html, "<p class=\"trap\">Trap: {}</p>", escaped(trap));
    }
    html.push_str("<ul>\n");
    for (nth, case) in report.cases.iter().enumerate() {
        let (name, verdict) = (escaped(&case.name), escaped(case.verdict()));
        let _ = writeln!(html, "<li><a href=\"#case{number}-{nth}\">{name}</a>: {verdict}</li>");
    }
    html.push_str("</ul>\n<h2>Results</h2>\n");
    for (nth, case) in report.cases.iter().enumerate() {
        let _ = writeln!(html, "<h3 id=\"case{number}-{nth}\">{}</h3>", escaped(&case.name));
        add_case(html, case, report.seeds);
    }
    html.push_str("<h2>Method</h2>\n<ul>\n");
    for line in report.conditions() {
        let _ = writeln!(html, "<li>{}</li>", escaped(&line));
    }
    html.push_str("</ul>\n<h2>Configuration</h2>\n");
    let _ = write!(html, "<pre>{}</pre>\n<h2>Reproduce</h2>\n", escaped(&configuration.toml()));
    html.push_str("<p>Save the configuration as <code>configuration.toml</code>");
    if report.is_modelled() {
        let _ = write!(
            html,
            ". <code>forebay validate run --model configuration.toml --seed {} --seeds {}</code> gives the same figures",
            report.seed, report.seeds
        );
    }
    if let Some(live) = report.cases.iter().find_map(|case| case.live.as_ref()) {
        let _ = write!(
            html,
            ". <code>--live --pool {} --seed {}</code> repeats the run on the pool",
            escaped(&live.pool),
            report.seed
        );
    }
    html.push_str(".</p>\n");
}

fn add_case(html: &mut String, case: &CaseReport, seeds: u64) {
    let between = |[least, most]: &[f64; 2], digits: usize| match seeds {
        1 => String::new(),
        _ => format!(" <small>({least:.digits$}–{most:.digits$})</small>"),
    };
    let _ = write!(
        html,
        "<p>{}.",
        escaped(if case.published.is_empty() { "Nothing was published" } else { &case.published })
    );
    if let Some(why) = case.reason() {
        let _ = write!(html, " The result differs: {}", escaped(why));
    }
    for failure in &case.failures {
        let _ = write!(html, " In this run, {}.", failure.told());
    }
    html.push_str("</p>\n");
    add_figures(html, case, &between);
    if case.is_modelled() {
        let _ = writeln!(html, "<p>{}.</p>", case.machine());
    }
    for (pool, busy) in case.busy.iter().enumerate() {
        let _ = writeln!(
            html,
            "<table><caption>Pool {pool}: disks {} busy</caption><tr><th>Workload</th><th>Needed IOPS</th><th>IOPS</th><th>IOPS, worst \
             second</th><th>MB/s</th><th>Mean ms</th><th>p50 ms</th><th>p99 ms</th><th>p99.9 ms</th><th>Outstanding</th><th></th></tr>",
            percents(busy)
        );
        for client in case.clients.iter().filter(|client| client.pool == pool) {
            let class = if client.met == Some(false) { " class=\"missed\"" } else { "" };
            let _ = writeln!(
                html,
                "<tr{class}><td>{}</td><td>{}</td><td>{:.0}{}</td><td>{}</td><td>{:.1}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}{}</td>\
                 <td>{:.2}</td><td>{:.2}</td><td>{}</td></tr>",
                escaped(&client.workload),
                client.needs_iops.map_or(String::new(), |needs| needs.to_string()),
                client.iops,
                between(&client.iops_between, 0),
                client.least_iops,
                client.bytes_per_second / 1e6,
                client.mean_ms,
                client.p50_ms,
                client.p99_ms,
                between(&client.p99_ms_between, 2),
                client.p999_ms,
                client.outstanding,
                extras(client)
            );
        }
        html.push_str("</table>\n");
        html.push_str(&percentiles(case, pool));
    }
    case.clients.iter().for_each(|client| add_phases(html, client));
    case.clients.iter().for_each(|client| html.push_str(&promised(client)));
    if !case.curve.is_empty() {
        let points = |of: fn(&crate::report::LoadReport) -> f64| {
            case.curve.iter().map(|load| (load.iops, of(load))).collect::<Vec<_>>()
        };
        let line = |name: &str, points| Line { name: name.into(), points, is_goal: false };
        let lines = [line("mean", points(|load| load.mean_ms)), line("p99", points(|load| load.p99_ms))];
        html.push_str(&plot("IOPS and latency", "IOPS", "ms", &lines));
        html.push_str("<table><tr><th>Outstanding</th><th>IOPS</th><th>Mean ms</th><th>p99 ms</th></tr>\n");
        for load in &case.curve {
            let _ = writeln!(
                html,
                "<tr><td>{}</td><td>{:.0}</td><td>{:.3}</td><td>{:.3}</td></tr>",
                load.outstanding, load.iops, load.mean_ms, load.p99_ms
            );
        }
        html.push_str("</table>\n");
    }
    case.live.iter().for_each(|live| add_live(html, live));
}

fn add_figures(html: &mut String, case: &CaseReport, between: &dyn Fn(&[f64; 2], usize) -> String) {
    if case.figures.is_empty() {
        return;
    }
    let is_live = case.live.is_some();
    html.push_str("<table><tr><th>Figure</th><th>Published</th>");
    html.push_str(if case.is_modelled() { "<th>Model</th><th>Model / published</th>" } else { "" });
    html.push_str(if is_live { "<th>Live</th><th>Live / published</th>" } else { "" });
    html.push_str("</tr>\n");
    for figure in &case.figures {
        let FigureReport { published, ours, between: range, live, .. } = figure;
        let _ = write!(html, "<tr><td>{}</td><td>{published}</td>", escaped(&figure.title()));
        if let (Some(ours), Some(range)) = (ours, range) {
            let (range, ratio) = (between(range, 2), ours / published);
            let _ = write!(html, "<td>{ours:.2}{range}</td><td>{ratio:.2}</td>");
        }
        match live {
            Some(live) => _ = write!(html, "<td>{live:.2}</td><td>{:.2}</td>", live / published),
            None if is_live => html.push_str("<td></td><td></td>"),
            None => {}
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table>\n");
}

/// What a running pool gave, and how far the model of each client is off.
fn add_live(html: &mut String, live: &LiveReport) {
    let is_modelled = live.clients.iter().any(|client| client.model.is_some());
    let _ = write!(
        html,
        "<table><caption>Live on pool {} over {}</caption><tr><th>Workload</th><th>IOPS</th><th>MB/s</th><th>Mean ms</th><th>p50 ms</th><th>p99 \
         ms</th>",
        escaped(&live.pool),
        live.over
    );
    if is_modelled {
        html.push_str("<th>Model IOPS</th><th>Model p99 ms</th><th>IOPS error</th><th>p99 error</th>");
    }
    html.push_str("<th></th></tr>\n");
    for client in &live.clients {
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{:.0}</td><td>{:.1}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}</td>",
            escaped(&client.workload),
            client.iops,
            client.bytes_per_second / 1e6,
            client.mean_ms,
            client.p50_ms,
            client.p99_ms
        );
        if let Some(ErrorReport { iops, p99_ms, iops_error, p99_error, within }) = &client.model {
            let _ = write!(html, "<td>{iops:.0}</td><td>{p99_ms:.2}</td>");
            for (error, is_within) in [iops_error, p99_error].into_iter().zip(within) {
                let class = if *is_within { "" } else { " class=\"missed\"" };
                let _ = write!(html, "<td{class}>{:+.0} %</td>", error * 100.0);
            }
        }
        let failed = if client.failed > 0 { format!("{} FAILED", client.failed) } else { String::new() };
        let _ = writeln!(html, "<td>{failed}</td></tr>");
    }
    html.push_str("</table>\n");
}

/// Of a client, what only some have.
fn extras(client: &ClientReport) -> String {
    let told = |value: Option<f64>, what: &str| value.map(|value| format!("{value:.1} {what}"));
    let all = [
        told(client.orders_per_minute, "orders/min"),
        told(client.hits_per_second, "IOPS from the client's cache"),
        told(client.compression_ratio, ": 1 compressed"),
        Some(client.verdict()).filter(|verdict| !verdict.is_empty()),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Percentiles of a pool's clients side by side.
fn percentiles(case: &CaseReport, pool: usize) -> String {
    let clients: Vec<_> = case.clients.iter().filter(|client| client.pool == pool).collect();
    // Of one there is nothing to compare, of many nothing to be seen.
    if !(2..=8).contains(&clients.len()) {
        return String::new();
    }
    let line = |name: &str, of: fn(&ClientReport) -> f64| Line {
        name: name.into(),
        points: clients.iter().enumerate().map(|(nth, client)| ((nth + 1) as f64, of(client))).collect(),
        is_goal: false,
    };
    let lines = [
        line("p50", |client| client.p50_ms),
        line("p99", |client| client.p99_ms),
        line("p99.9", |client| client.p999_ms),
    ];
    plot("Percentiles", "client, in the order of the table", "ms", &lines)
}

/// What a client was promised or needs, and what it got, over time; nothing where neither was.
fn promised(client: &ClientReport) -> String {
    let goals = [("minimum", client.min_iops), ("needed", client.needs_iops)];
    let last = client.seconds.len().saturating_sub(1) as f64;
    let goals = goals.into_iter().filter_map(|(name, goal)| {
        let goal = goal? as f64;
        Some(Line { name: name.into(), points: vec![(0.0, goal), (last, goal)], is_goal: true })
    });
    let goals: Vec<Line> = goals.collect();
    if goals.is_empty() || client.seconds.len() < 2 {
        return String::new();
    }
    let got = client.seconds.iter().enumerate().map(|(nth, second)| (nth as f64, second.0 as f64));
    let got = Line { name: "delivered".into(), points: got.collect(), is_goal: false };
    let lines: Vec<Line> = [got].into_iter().chain(goals).collect();
    plot(&escaped(&client.workload), &format!("time in s, {}", escaped(&client.workload)), "IOPS", &lines)
}

fn add_phases(html: &mut String, client: &ClientReport) {
    if client.phases.is_empty() {
        return;
    }
    let _ = writeln!(
        html,
        "<table><caption>Phases of {}</caption><tr><th>Seconds</th><th>Requested IOPS</th><th>IOPS</th><th>Highest IOPS</th><th>Mean ms</th><th>Longest \
         ms</th></tr>",
        escaped(&client.workload)
    );
    for phase in &client.phases {
        let _ = writeln!(
            html,
            "<tr><td>{}–{}</td><td>{}</td><td>{:.0}</td><td>{}</td><td>{:.2}</td><td>{:.1}</td></tr>",
            phase.from, phase.to, phase.rate, phase.iops, phase.most_iops, phase.mean_ms, phase.longest_ms
        );
    }
    html.push_str("</table>\n");
}
