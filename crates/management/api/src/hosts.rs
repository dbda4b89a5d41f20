//! The objects of access over iSCSI: hosts, host groups, mappings and sessions.
//!
//! A host is known by its initiator names. A mapping shows one volume to one host, or to every member of a group, under a
//! number that does not change while the mapping lives. CHAP secrets go in and never come out: what is shown says
//! only whose name goes with them.

use crate::Condition;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// A computer that may use volumes over iSCSI.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Host {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub spec: HostSpec,
    pub status: HostStatus,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HostSpec {
    /// iSCSI names in lower case.
    pub initiators: Vec<String>,
    /// The name by which the host proves itself (CHAP); absent: its initiator name is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap_user: Option<String>,
    /// The name by which the target proves itself to the host (mutual CHAP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual_user: Option<String>,
    /// What it gets at most in a second over iSCSI, with all its sessions and volumes; absent without a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_iops: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_bytes_per_second: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HostStatus {
    /// Names of the groups that it is a member of.
    pub groups: Vec<String>,
    /// Volumes that it sees, its own and its groups'.
    pub volumes: u64,
    /// iSCSI sessions that it has now.
    pub sessions: u64,
    pub created_unix_ms: u64,
}

/// A CHAP name with its secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Chap {
    /// 1 to 255 letters, digits and `.-+@_/[]:`.
    pub user: String,
    /// 12 to 255 bytes without control characters.
    pub secret: String,
}

impl std::fmt::Debug for Chap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chap({}, ..)", self.user)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostCreate {
    /// 1 to 63 letters, digits and `._-`, starting with a letter; no host and no group has it yet.
    pub name: String,
    /// 1 to 64 iSCSI names (`iqn.`, `eui.` or `naa.`) that no other host has.
    pub initiators: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<Chap>,
    /// Only with `chap`, and with another secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual: Option<Chap>,
    /// Requests that it gets at most in a second over iSCSI, with all its sessions and volumes: 10 to 10000000; 0 for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_iops: Option<u64>,
    /// Bytes likewise, at least 1048576; 0 for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_bytes_per_second: Option<u64>,
}

/// What to change of a host; what is absent stays.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostSet {
    /// All initiator names that it has from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiators: Option<Vec<String>>,
    /// `null`: its initiator name is enough from now on.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Chap>)]
    pub chap: Option<Option<Chap>>,
    /// `null`: the target does not prove itself any more.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Chap>)]
    pub mutual: Option<Option<Chap>>,
    /// Requests that it gets at most in a second over iSCSI, with all its sessions and volumes: 10 to 10000000; 0 for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_iops: Option<u64>,
    /// Bytes likewise, at least 1048576; 0 for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_bytes_per_second: Option<u64>,
}

/// A field that is there, be it `null`; one that is absent becomes `None` by its default.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    field: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(field).map(Some)
}

/// Hosts that see the same volumes under the same numbers: a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HostGroup {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub spec: HostGroupSpec,
    pub status: HostGroupStatus,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HostGroupSpec {
    /// Names of its members.
    pub hosts: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HostGroupStatus {
    /// Volumes mapped to the group.
    pub volumes: u64,
    pub created_unix_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostGroupCreate {
    /// 1 to 63 letters, digits and `._-`, starting with a letter; no host and no group has it yet.
    pub name: String,
    /// Names or UUIDs of its members.
    #[serde(default)]
    pub hosts: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostGroupSet {
    /// Names or UUIDs of all its members from now on.
    pub hosts: Vec<String>,
}

/// A volume shown to a host or a host group. Its name is `POOL/NAME:HOST`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Mapping {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub spec: MappingSpec,
    pub status: MappingStatus,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MappingSpec {
    /// `POOL/NAME`.
    pub volume: String,
    /// Name of the host or host group.
    pub host: String,
    /// The same for the mapping's life; each number once for a host at a target.
    pub lun: u16,
    /// The same in all mappings of one volume.
    pub logical_block_bytes: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MappingStatus {
    #[schema(format = "uuid")]
    pub volume_id: String,
    /// Whether `host` is a group.
    pub is_group: bool,
    /// Where the host sees it: the iSCSI name of the pool's target.
    pub target: String,
    pub created_unix_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MappingCreate {
    /// `POOL/NAME` or UUID.
    pub volume: String,
    /// Name or UUID of a host or a host group.
    pub host: String,
    /// 0 to 16383. Default: the lowest that is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<u16>,
    /// 512 or 4096. Default: what the volume's other mappings have, or 512.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logical_block_bytes: Option<u32>,
}

/// An initiator that is logged in over iSCSI.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// A number that no other session of this daemon has had.
    pub id: String,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// Whose initiator that is; absent when it is nobody's any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The target's iSCSI name; absent for a discovery session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The initiator's address and port.
    pub address: String,
    /// The address and port of ours at which it logged in.
    pub portal: String,
    pub portal_group: u16,
    pub since_unix_ms: u64,
    pub commands: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_field_stays_and_null_removes() {
        let set = |text: &str| serde_json::from_str::<HostSet>(text);
        assert_eq!(set("{}").unwrap(), HostSet::default());
        assert_eq!(set(r#"{"chap":null}"#).unwrap().chap, Some(None));
        let chap = set(r#"{"chap":{"user":"u","secret":"0123456789ab"}}"#).unwrap().chap;
        assert_eq!(chap.flatten().map(|chap| chap.user).as_deref(), Some("u"));
        assert!(set(r#"{"chap":1}"#).is_err() && set(r#"{"nap":null}"#).is_err());
        let text = serde_json::to_string(&HostSet { chap: Some(None), ..HostSet::default() }).unwrap();
        assert_eq!(text, r#"{"chap":null}"#);
    }

    #[test]
    fn a_secret_is_not_in_what_is_logged() {
        let chap = Chap { user: "u".into(), secret: "0123456789ab".into() };
        assert_eq!(format!("{chap:?}"), "Chap(u, ..)");
    }
}
