//! Is a volume that was deleted by mistake there again, and is one that was purged gone?
//!
//! Method: the real daemon and its command line; data goes through NBD, and `kill -9` comes in between.

use crate::common::{Daemon, Nbd, Place};
use serde_json::{Value, json};

const BLOCK: usize = 8192;

fn trash(place: &Place) -> Vec<Value> {
    place.json(&["volume", "trash"])["items"].as_array().expect("a list").clone()
}

#[test]
fn what_was_deleted_comes_back_until_it_is_purged() {
    let place = Place::new();
    place.disks();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["host", "create", "esx1", "--iqn", "iqn.1998-01.com.vmware:esx1"]).expect(0);
    place.run(&["volume", "create", "tank/a", "--size", "64M", "--host", "esx1"]).expect(0);
    assert!(place.run(&["volume", "trash"]).expect(0).out.contains("The trash is empty"));
    assert_eq!(place.json(&["pool", "list"])["items"][0]["spec"]["trash_keep_seconds"], 7 * 86400);
    let id = place.json(&["volume", "show", "tank/a"])["id"].clone();
    place.run(&["snapshot", "create", "tank/a@s"]).expect(0);

    // Not under a client, and not without knowing of its snapshots.
    let delete = ["volume", "delete", "tank/a", "--with-snapshots"];
    {
        let mut nbd = Nbd::open(&daemon.nbd, "tank/a");
        nbd.write(0, &[1; BLOCK]);
        place.run(&["volume", "delete", "tank/a", "--yes"]).expect(5).says("--with-snapshots");
        place.run(&[&delete[..], &["--yes"]].concat()).expect(5).says("NBD client").says("--force");
        place.run(&[&delete[..], &["--force"]].concat()).expect(5).says("--yes");
        let plan = place.json(&[&delete[..], &["--force", "--dry-run"]].concat());
        let plan = plan["changes"].to_string();
        assert!(plan.contains("in the trash for 7d") && plan.contains("esx1 loses the volume"), "{plan}");
        assert!(trash(&place).is_empty());
        let done = place.run(&[&delete[..], &["--force", "--yes"]].concat()).expect(0);
        assert!(done.out.contains("in the trash for 7d"), "{}", done.out);
    }
    place.run(&["volume", "show", "tank/a"]).expect(3);
    assert_eq!(place.json(&["snapshot", "list"])["items"], json!([]));
    daemon.kill();
    let daemon = Daemon::start(&place);
    let there = trash(&place);
    assert_eq!((there.len(), &there[0]["id"], &there[0]["snapshots"]), (1, &id, &json!(1)));
    let (deleted, purge) = (&there[0]["deleted_unix_ms"], &there[0]["purge_unix_ms"]);
    assert_eq!(purge.as_u64().unwrap() - deleted.as_u64().unwrap(), 7 * 86_400_000);

    // Its name is another's by now, and is deleted in turn.
    place.run(&["volume", "create", "tank/a", "--size", "64M"]).expect(0);
    place.run(&["volume", "restore", "tank/a"]).expect(4).says("--as");
    place.run(&["volume", "delete", "tank/a", "--yes"]).expect(0);
    place.run(&["volume", "restore", "tank/a"]).expect(4).says(id.as_str().unwrap());
    place.run(&["volume", "purge", "tank/a", "--yes"]).expect(4).says("UUID");
    let restore = ["volume", "restore", id.as_str().unwrap(), "--as", "tank/back"];
    place.run(&["volume", "restore", id.as_str().unwrap(), "--as", "other/back"]).expect(2).says("tank");
    place.run(&[&restore[..], &["--dry-run"]].concat()).expect(0);
    assert_eq!(trash(&place).len(), 2);
    assert_eq!(place.json(&restore)["name"], "tank/back");
    assert_eq!(Nbd::open(&daemon.nbd, "tank/back").read(0, BLOCK), [1; BLOCK]);
    place.run(&["snapshot", "show", "tank/back@s"]).expect(0);
    assert_eq!(place.json(&["host", "show", "esx1"])["status"]["volumes"], 0, "it is mapped to nobody");

    // Keeping it for less asks, as long as there is something to lose.
    place.run(&["pool", "set", "tank", "--trash-keep", "1d"]).expect(5).says("--yes");
    place.run(&["pool", "set", "tank", "--trash-keep", "8d"]).expect(0);

    // For good.
    place.run(&["volume", "purge", "tank/a"]).expect(5).says("--yes");
    place.run(&["volume", "purge", "tank/a", "--dry-run"]).expect(0);
    place.run(&["volume", "purge", "tank/a", "--yes"]).expect(0);
    place.run(&["volume", "purge", "tank/a", "--yes"]).expect(3).says("volume trash");
    assert!(trash(&place).is_empty());

    // How long is the pool's to say.
    place.run(&["pool", "set", "tank", "--trash-keep", "1s"]).expect(2).says("1 minute");
    place.run(&["pool", "set", "tank", "--trash-keep", "30d", "--dry-run"]).expect(0);
    let set = place.json(&["pool", "set", "tank", "--trash-keep", "off"]);
    assert_eq!(set["spec"]["trash_keep_seconds"], 0);
    daemon.kill();
    let daemon = Daemon::start(&place);
    let gone = ["volume", "delete", "tank/back", "--with-snapshots", "--force", "--yes"];
    assert!(place.run(&gone).expect(0).out.contains("is deleted"));
    assert!(trash(&place).is_empty());
    let events = place.run(&["event", "list"]).expect(0).out;
    for code in ["volume.trashed", "volume.restored", "volume.purged", "pool.changed", "volume.deleted"] {
        assert!(events.contains(code), "{code} in {events}");
    }
    daemon.stop();
    place.run(&["check", "--offline", "a", "b"]).expect(0);
}
