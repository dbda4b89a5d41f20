//! Volumes of projects move into projects of the same name.

use super::*;
use forebay_pool::{ProjectProperties, Source};

async fn project(pools: &Pools, name: &str, compression: Compression) {
    let said = ProjectProperties { compression: Some(compression), ..ProjectProperties::default() };
    pools.engine.project_create(name, said).await.expect("created");
}

#[test]
fn what_moves_inherits_where_it_goes() {
    on_pools(|pools| async move {
        project(&pools, "tank/db", Compression::Zstd(3)).await;
        for (name, compression) in [("db/a", None), ("db/own", Some(Compression::Gzip(1)))] {
            let own_hosts = name == "db/own";
            let spec = VolumeSpec { compression, own_hosts, ..pools.volume_spec("tank", name, MIB) };
            pools.engine.volume_create(spec).await.expect("created");
        }
        // It would belong to nothing there, and have other properties than anybody chose.
        let refused = pools.move_to("tank/db/a", "vault").await.expect_err("no such project");
        assert_eq!(refused.kind, ErrorKind::NotFound);
        assert!(refused.remedy.contains("forebay project create vault/db"), "{refused}");
        project(&pools, "vault/db", Compression::Lzjb).await;
        let moved = pools.move_to("tank/db/a", "vault").await.expect("moved");
        assert_eq!((moved.compression, moved.sources.compression), (Compression::Lzjb, Source::Project));
        assert_eq!(moved.sources.hosts, Source::Project);
        assert_eq!((moved.sources.sync, moved.project.as_deref()), (Source::Own, Some("db")));
        let moved = pools.move_to("tank/db/own", "vault").await.expect("moved");
        assert_eq!((moved.compression, moved.sources.compression), (Compression::Gzip(1), Source::Own));
        assert_eq!(moved.sources.hosts, Source::Own);
        pools.engine.project_delete("tank/db").await.expect("nothing is left in it");
        assert_eq!(kind(pools.engine.project_delete("vault/db").await), Some(ErrorKind::Conflict));
        // A project has the name that a volume would get.
        pools.create("tank/db", MIB, VolumeFormat::Thin).await.expect("created");
        assert_eq!(kind(pools.move_to("tank/db", "vault").await), Some(ErrorKind::Conflict));
    });
}

#[test]
fn what_moves_counts_where_it_goes() {
    on_pools(|pools| async move {
        project(&pools, "tank/db", Compression::Lz4).await;
        let quota = Some(2 * MIB);
        let said = ProjectProperties { quota, ..Default::default() };
        pools.engine.project_create("vault/db", said).await.expect("created");
        let used = async |project: &str| pools.engine.project(project).await.expect("there").used;
        for name in ["a", "b"] {
            let volume = pools.create(&format!("tank/db/{name}"), 4 * MIB, VolumeFormat::Thin).await;
            let clients = Clients::new(&pools, volume.expect("created"));
            clients.fill(300).await;
        }
        pools.move_to("tank/db/a", "vault").await.expect("moved");
        let refused = pools.move_to("tank/db/b", "vault").await.expect_err("beyond the quota");
        assert_eq!(refused.kind, ErrorKind::NoSpace);
        pools.engine.checkpoint("vault").await.expect("checkpoint");
        let moved = used("vault/db").await;
        assert!((250 * BLOCK..=300 * BLOCK).contains(&moved), "{moved}");
        pools.rt.sleep(Duration::from_secs(5)).await;
        assert!(used("tank/db").await <= 300 * BLOCK);
    });
}
