//! What projects may say, and what becomes of properties.

use super::{compression, invalid, shown, snapshots, volume_name};
use crate::convert;
use crate::levels::{CEILING_BYTES, CEILING_IOPS, Content as Levels, check_ceiling};
use forebay_api::{
    Problem, ProjectCreate, ProjectSet, Property, VolumeCreate, VolumeSet, show_rate_exact, show_size_exact,
};
use forebay_base::Id;
use forebay_pool::{
    Compression, ProjectChange, ProjectProperties, Rate, Setting, Source, Sources, SyncPolicy, VolumeChange,
    VolumeInfo,
};

/// As the engine has it that there is none.
const NO_LEVEL: Id = Id(0);

/// Splits `POOL/PROJECT`.
pub fn project_name(full: &str) -> Result<(&str, &str), Problem> {
    let wrong = || {
        let detail = format!("`{}` is not a project's name", shown(full));
        invalid("name", detail, "Write POOL/PROJECT; after the pool use 1 to 63 letters, digits and `._-`.")
    };
    let (pool, project) = volume_name(full).map_err(|_| wrong())?;
    if project.contains('/') || project.len() > 63 {
        return Err(wrong());
    }
    Ok((pool, project))
}

/// The project that a volume of this name within its pool belongs to.
pub fn project_of(volume: &str) -> Option<&str> {
    volume.split_once('/').map(|(project, _)| project)
}

fn block_size(bytes: Option<u32>) -> Result<(), Problem> {
    match bytes {
        Some(bytes) if !bytes.is_power_of_two() || !(4096..=131072).contains(&bytes) => {
            let detail = format!("{} is not a block size", show_size_exact(bytes.into()));
            Err(invalid("block_size_bytes", detail, super::BLOCK_SIZES))
        }
        _ => Ok(()),
    }
}

/// A quota that is asked for: 0 is none.
fn quota(bytes: Option<u64>) -> Result<Option<Option<u64>>, Problem> {
    match bytes {
        Some(bytes @ 1..1_048_576) => {
            let detail = format!("{} is not a quota", show_size_exact(bytes));
            Err(invalid("quota_bytes", detail, "Give 1 MiB or more, or 0 for none."))
        }
        bytes => Ok(bytes.map(|bytes| Some(bytes).filter(|bytes| *bytes > 0))),
    }
}

/// What becomes of a bound of which `now` is the value: 0 is none.
fn bound(field: &str, now: u64, asked: Option<u64>) -> Result<Setting<u64>, Problem> {
    match asked {
        Some(asked) if asked == now => Ok(Setting::Keep),
        Some(0) => Ok(Setting::Inherit),
        Some(asked) => check_ceiling(field, asked).map(|()| Setting::Own(asked)),
        None => Ok(Setting::Keep),
    }
}

pub fn create(request: &ProjectCreate, levels: &Levels) -> Result<ProjectProperties, Problem> {
    project_name(&request.name)?;
    block_size(request.block_size_bytes)?;
    let (every, keep) = (request.snapshot_every_seconds, request.snapshot_keep);
    let ceiling = |field, asked| Ok(bound(field, 0, asked)?.said().flatten().unwrap_or(0));
    Ok(ProjectProperties {
        sync: request.sync.map(convert::sync_in),
        compression: compression(request.compression.as_deref())?,
        schedule: snapshots::schedule(Default::default(), every, keep)?,
        block_size: request.block_size_bytes,
        format: request.format.map(convert::format_in),
        level: levels.asked(request.level.as_deref())?.filter(|level| *level != NO_LEVEL),
        quota: quota(request.quota_bytes)?.flatten(),
        ceiling: Rate {
            iops: ceiling(CEILING_IOPS, request.max_iops)?,
            bytes: ceiling(CEILING_BYTES, request.max_bytes_per_second)?,
        },
    })
}

/// What becomes of a property of which `now` is the value: nothing where it would stay as it is.
fn setting<T: PartialEq>(
    property: Property,
    (now, is_own): (T, bool),
    asked: Option<T>,
    inherit: &[Property],
) -> Result<Setting<T>, Problem> {
    match (asked, inherit.contains(&property)) {
        (Some(_), true) => {
            let detail = format!("{} cannot both have a value and be inherited", property.name());
            Err(invalid("inherit", detail, "Give one of them."))
        }
        (Some(asked), false) if is_own && asked == now => Ok(Setting::Keep),
        (Some(asked), false) => Ok(Setting::Own(asked)),
        (None, true) if is_own => Ok(Setting::Inherit),
        (None, _) => Ok(Setting::Keep),
    }
}

pub fn project_change(
    now: &ProjectProperties,
    request: &ProjectSet,
    levels: &Levels,
) -> Result<ProjectChange, Problem> {
    block_size(request.block_size_bytes)?;
    let inherit = &request.inherit[..];
    let (every, keep) = (request.snapshot_every_seconds, request.snapshot_keep);
    let schedule = snapshots::schedule(now.schedule.unwrap_or_default(), every, keep)?;
    let block = now.block_size.unwrap_or(VolumeCreate::BLOCK_SIZE_DEFAULT);
    let of = |value: Option<Compression>| (value.unwrap_or_default(), value.is_some());
    Ok(ProjectChange {
        sync: setting(
            Property::Sync,
            (now.sync.unwrap_or_default(), now.sync.is_some()),
            request.sync.map(convert::sync_in),
            inherit,
        )?,
        compression: setting(
            Property::Compression,
            of(now.compression),
            compression(request.compression.as_deref())?,
            inherit,
        )?,
        schedule: setting(
            Property::SnapshotSchedule,
            (now.schedule.unwrap_or_default(), now.schedule.is_some()),
            schedule,
            inherit,
        )?,
        level: match setting(
            Property::Level,
            (now.level.unwrap_or(NO_LEVEL), now.level.is_some()),
            levels.asked(request.level.as_deref())?,
            inherit,
        )? {
            // That there is none it says by saying nothing.
            Setting::Own(NO_LEVEL) if now.level.is_some() => Setting::Inherit,
            Setting::Own(NO_LEVEL) => Setting::Keep,
            level => level,
        },
        block_size: setting(
            Property::BlockSize,
            (block, now.block_size.is_some()),
            request.block_size_bytes,
            inherit,
        )?,
        format: setting(
            Property::Format,
            (now.format.unwrap_or_default(), now.format.is_some()),
            request.format.map(convert::format_in),
            inherit,
        )?,
        quota: match quota(request.quota_bytes)? {
            Some(asked) if asked != now.quota => asked.map_or(Setting::Inherit, Setting::Own),
            _ => Setting::Keep,
        },
        max_iops: bound(CEILING_IOPS, now.ceiling.iops, request.max_iops)?,
        ceiling_bytes: bound(CEILING_BYTES, now.ceiling.bytes, request.max_bytes_per_second)?,
    })
}

pub fn volume_change(
    now: &VolumeInfo,
    request: &VolumeSet,
    levels: &Levels,
) -> Result<VolumeChange, Problem> {
    let inherit = &request.inherit[..];
    let fixed = [Property::BlockSize, Property::Format];
    if let Some(property) = inherit.iter().find(|property| fixed.contains(property)) {
        let detail = format!("a volume cannot inherit its {}", property.name());
        return Err(invalid("inherit", detail, "A project sets it for new volumes only."));
    }
    let Sources { sync, compression: kind, schedule, level, hosts } = now.sources;
    let (every, keep) = (request.snapshot_every_seconds, request.snapshot_keep);
    Ok(VolumeChange {
        sync: setting(
            Property::Sync,
            (now.sync, sync == Source::Own),
            request.sync.map(convert::sync_in),
            inherit,
        )?,
        compression: setting(
            Property::Compression,
            (now.compression, kind == Source::Own),
            compression(request.compression.as_deref())?,
            inherit,
        )?,
        schedule: setting(
            Property::SnapshotSchedule,
            (now.schedule, schedule == Source::Own),
            snapshots::schedule(now.schedule, every, keep)?,
            inherit,
        )?,
        level: setting(
            Property::Level,
            (now.level, level == Source::Own),
            levels.asked(request.level.as_deref())?,
            inherit,
        )?,
        hosts: setting(Property::Hosts, ((), hosts == Source::Own), None, inherit)?,
    })
}

/// What becomes of the hosts that a project names, of which `now` are the UUIDs.
pub fn hosts(
    now: &[String],
    asked: Option<Vec<String>>,
    inherit: &[Property],
) -> Result<Setting<Vec<String>>, Problem> {
    if asked.as_ref().is_some_and(Vec::is_empty) {
        let remedy = "Name hosts or host groups. Or inherit `hosts`: then its volumes are mapped to no host.";
        return Err(invalid("hosts", "no host is named".into(), remedy));
    }
    setting(Property::Hosts, (now.to_vec(), !now.is_empty()), asked, inherit)
}

fn in_words<T>(setting: Setting<T>, property: Property, own: impl Fn(T) -> String) -> Option<String> {
    match setting {
        Setting::Keep => None,
        Setting::Own(value) => Some(own(value)),
        Setting::Inherit => Some(format!("{} inherited", property.name())),
    }
}

fn sync_in_words(sync: SyncPolicy) -> String {
    format!("sync set to {}", sync.name())
}

fn compression_in_words(compression: Compression) -> String {
    format!("compression of new data set to {compression}")
}

pub fn volume_change_in_words(change: &VolumeChange, levels: &Levels) -> Vec<String> {
    let level = |id: Id| format!("level set to {}", levels.name_of(id).unwrap_or_else(|| id.to_string()));
    [
        in_words(change.sync, Property::Sync, sync_in_words),
        in_words(change.compression, Property::Compression, compression_in_words),
        in_words(change.schedule, Property::SnapshotSchedule, snapshots::schedule_in_words),
        in_words(change.level, Property::Level, level),
        in_words(change.hosts, Property::Hosts, |()| "hosts no longer inherited".into()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub fn project_change_in_words(change: &ProjectChange, levels: &Levels) -> Vec<String> {
    let block_size =
        |bytes: u32| format!("block size of new volumes set to {}", show_size_exact(bytes.into()));
    let format =
        |format: forebay_pool::VolumeFormat| format!("format of new volumes set to {}", format.name());
    let ProjectChange { sync, compression, schedule, level, .. } = *change;
    let same = VolumeChange { sync, compression, schedule, level, ..VolumeChange::default() };
    let mut words = volume_change_in_words(&same, levels);
    words.extend(in_words(change.block_size, Property::BlockSize, block_size));
    words.extend(in_words(change.format, Property::Format, format));
    words.extend(match change.quota {
        Setting::Keep => None,
        Setting::Own(bytes) => Some(format!("quota set to {}", show_size_exact(bytes))),
        Setting::Inherit => Some("quota removed".into()),
    });
    let ceiling = |setting: Setting<u64>, what: &str, show: fn(u64) -> String| match setting {
        Setting::Keep => None,
        Setting::Own(rate) => Some(format!("limit of all volumes together set to {}", show(rate))),
        Setting::Inherit => Some(format!("limit of {what} removed")),
    };
    words.extend(ceiling(change.max_iops, "IOPS", |iops| format!("{iops} IOPS")));
    words.extend(ceiling(change.ceiling_bytes, "bytes a second", show_rate_exact));
    words
}

#[cfg(test)]
mod tests {
    use super::super::tests::field;
    use super::*;
    use crate::access::tests::volume;
    use forebay_api::{SnapshotKeep, Sync};
    use forebay_pool::SnapshotSchedule;

    #[test]
    fn names_of_projects() {
        assert_eq!(project_name("tank/web").unwrap(), ("tank", "web"));
        let long = format!("tank/{}", "x".repeat(64));
        for bad in ["tank", "tank/", "/web", "tank/web/a", "tank/..", "tank/a b", "1/a", &long] {
            assert_eq!(field(project_name(bad)), "name", "{bad:?}");
        }
        assert_eq!((project_of("web/a"), project_of("a")), (Some("web"), None));
    }

    #[test]
    fn a_value_that_is_inherited_becomes_its_own_when_it_is_asked_for() {
        let now = volume(1, "tank", "web/a", 0);
        let inherited = Sources {
            sync: Source::Project,
            compression: Source::Own,
            schedule: Source::Default,
            level: Source::Default,
            hosts: Source::Own,
        };
        let levels = Levels::default();
        let volume_change = |now: &_, request: &_| volume_change(now, request, &levels);
        let now = VolumeInfo { sources: inherited, ..now };
        let sync = VolumeSet { sync: Some(Sync::Always), ..VolumeSet::default() };
        let compression = VolumeSet { compression: Some("off".into()), ..VolumeSet::default() };
        let never = VolumeSet { snapshot_every_seconds: Some(0), ..VolumeSet::default() };
        let inherit = |property| VolumeSet { inherit: vec![property], ..VolumeSet::default() };
        let level = |name: &str| VolumeSet { level: Some(name.into()), ..VolumeSet::default() };
        let keep = VolumeChange::default();
        for (request, change) in [
            (sync.clone(), VolumeChange { sync: Setting::Own(SyncPolicy::Always), ..keep }),
            (compression.clone(), keep),
            (never, VolumeChange { schedule: Setting::Own(SnapshotSchedule::default()), ..keep }),
            (inherit(Property::Compression), VolumeChange { compression: Setting::Inherit, ..keep }),
            (inherit(Property::Sync), keep),
            (inherit(Property::Hosts), VolumeChange { hosts: Setting::Inherit, ..keep }),
            (level("non-critical-1"), VolumeChange { level: Setting::Own(Id(4)), ..keep }),
            (level("none"), VolumeChange { level: Setting::Own(NO_LEVEL), ..keep }),
            (inherit(Property::Level), keep),
            (VolumeSet::default(), keep),
        ] {
            assert_eq!(volume_change(&now, &request).unwrap(), change, "{request:?}");
        }
        let both = VolumeSet { inherit: vec![Property::Sync], ..sync };
        assert_eq!(field(volume_change(&now, &both)), "inherit");
        assert_eq!(field(volume_change(&now, &inherit(Property::BlockSize))), "inherit");
        let wrong = VolumeSet { compression: Some("zip".into()), ..compression };
        assert_eq!(field(volume_change(&now, &wrong)), "compression");
    }

    #[test]
    fn projects_say_what_they_are_asked_to() {
        let levels = Levels::default();
        let create = |request: &_| create(request, &levels);
        let project_change = |now: &_, request: &_| project_change(now, request, &levels);
        let project_change_in_words = |change: &_| project_change_in_words(change, &levels);
        let bare = ProjectCreate {
            name: "tank/web".into(),
            sync: None,
            compression: None,
            snapshot_every_seconds: None,
            snapshot_keep: None,
            block_size_bytes: None,
            format: None,
            quota_bytes: None,
            max_iops: None,
            max_bytes_per_second: None,
            hosts: None,
            level: None,
        };
        assert_eq!(create(&bare).unwrap(), ProjectProperties::default());
        let hourly = ProjectCreate { snapshot_every_seconds: Some(3600), ..bare.clone() };
        assert_eq!(field(create(&hourly)), "snapshot_keep");
        assert_eq!(
            field(create(&ProjectCreate { block_size_bytes: Some(512), ..bare.clone() })),
            "block_size_bytes"
        );
        let said = ProjectCreate {
            snapshot_keep: Some(SnapshotKeep::last(3)),
            block_size_bytes: Some(65536),
            ..hourly
        };
        let now = create(&said).unwrap();
        let last = |last| convert::snapshot_keep_in(SnapshotKeep::last(last));
        let schedule = SnapshotSchedule { every_seconds: 3600, keep: last(3) };
        assert_eq!((now.schedule, now.block_size, now.sync), (Some(schedule), Some(65536), None));
        let asked = ProjectSet {
            sync: Some(Sync::Always),
            snapshot_keep: Some(SnapshotKeep::last(9)),
            block_size_bytes: Some(65536),
            inherit: vec![Property::Compression, Property::Format],
            ..ProjectSet::default()
        };
        let change = project_change(&now, &asked).unwrap();
        let schedule = Setting::Own(SnapshotSchedule { keep: last(9), ..schedule });
        let sync = Setting::Own(SyncPolicy::Always);
        assert_eq!(change, ProjectChange { sync, schedule, ..ProjectChange::default() });
        assert_eq!(project_change_in_words(&change).len(), 2);
        assert_eq!(field(create(&ProjectCreate { quota_bytes: Some(4096), ..bare.clone() })), "quota_bytes");
        let limited = create(&ProjectCreate { quota_bytes: Some(1 << 30), ..bare.clone() }).unwrap();
        assert_eq!(limited.quota, Some(1 << 30));
        assert_eq!(create(&ProjectCreate { quota_bytes: Some(0), ..bare }).unwrap().quota, None);
        for (was, asked, quota) in [
            (limited, Some(0), Setting::Inherit),
            (limited, Some(1 << 30), Setting::Keep),
            (limited, Some(1 << 31), Setting::Own(1 << 31)),
            (now, Some(0), Setting::Keep),
            (limited, None, Setting::Keep),
        ] {
            let asked = ProjectSet { quota_bytes: asked, ..ProjectSet::default() };
            let change = project_change(&was, &asked).unwrap();
            assert_eq!(change, ProjectChange { quota, ..ProjectChange::default() });
            assert_eq!(project_change_in_words(&change).is_empty(), quota == Setting::Keep);
        }
        let few = ProjectCreate { max_iops: Some(9), ..said.clone() };
        assert_eq!(field(create(&few)), "max_iops");
        let capped = create(&ProjectCreate { max_iops: Some(500), ..few }).unwrap();
        assert_eq!(capped.ceiling, Rate { iops: 500, bytes: 0 });
        for (asked, max_iops) in [(0, Setting::Inherit), (500, Setting::Keep), (1000, Setting::Own(1000))] {
            let asked = ProjectSet { max_iops: Some(asked), ..ProjectSet::default() };
            let change = project_change(&capped, &asked).unwrap();
            assert_eq!(change, ProjectChange { max_iops, ..ProjectChange::default() });
            assert_eq!(project_change_in_words(&change).is_empty(), max_iops == Setting::Keep);
        }
        let few = ProjectSet { max_bytes_per_second: Some(4096), ..ProjectSet::default() };
        assert_eq!(field(project_change(&capped, &few)), "max_bytes_per_second");
        let level = Some(Id(4));
        let levelled = ProjectProperties { level, ..now };
        assert_eq!(
            create(&ProjectCreate { level: Some("non-critical-1".into()), ..said }).unwrap(),
            levelled
        );
        for (was, asked, level) in [
            (levelled, "none", Setting::Inherit),
            (now, "none", Setting::Keep),
            (levelled, "non-critical-1", Setting::Keep),
            (levelled, "non-critical-2", Setting::Own(Id(5))),
        ] {
            let asked = ProjectSet { level: Some(asked.into()), ..ProjectSet::default() };
            let change = project_change(&was, &asked).unwrap();
            assert_eq!(change, ProjectChange { level, ..ProjectChange::default() });
            assert_eq!(project_change_in_words(&change).is_empty(), level == Setting::Keep);
        }
        let asked = ProjectSet { inherit: Property::ALL.to_vec(), ..ProjectSet::default() };
        let change = project_change(&now, &asked).unwrap();
        let (schedule, block_size) = (Setting::Inherit, Setting::Inherit);
        assert_eq!(change, ProjectChange { schedule, block_size, ..ProjectChange::default() });
    }

    #[test]
    fn a_project_names_hosts_or_none() {
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let (a, inherit) = (names(&["a"]), [Property::Hosts]);
        assert_eq!(hosts(&a, Some(a.clone()), &[]), Ok(Setting::Keep));
        assert_eq!(hosts(&a, Some(names(&["b"])), &[]), Ok(Setting::Own(names(&["b"]))));
        assert_eq!(hosts(&[], Some(a.clone()), &[]), Ok(Setting::Own(a.clone())));
        assert_eq!(hosts(&a, None, &inherit), Ok(Setting::Inherit));
        assert_eq!(hosts(&[], None, &inherit), Ok(Setting::Keep));
        assert_eq!(field(hosts(&a, Some(a.clone()), &inherit)), "inherit");
        assert_eq!(field(hosts(&a, Some(Vec::new()), &[])), "hosts");
    }
}
