//! Access over iSCSI: hosts, host groups, mappings and sessions.
//!
//! A host has initiator names. A mapping shows one volume to one host, or to every member of a group, under a LUN
//! that never changes. CHAP secrets are in requests only, never in answers.

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
    /// Its iSCSI initiator names, in lower case.
    pub initiators: Vec<String>,
    /// CHAP name of the host; absent: the initiator name is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap_user: Option<String>,
    /// CHAP name of the target, for mutual CHAP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual_user: Option<String>,
    /// Limit in IOPS for all its sessions and volumes over iSCSI; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes_per_second: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HostStatus {
    /// Names of its groups.
    pub groups: Vec<String>,
    /// Number of volumes mapped to it and its groups.
    pub volumes: u64,
    /// Number of its iSCSI sessions.
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
    /// 1 to 63 letters, digits and `._-`, starting with a letter; not the name of another host or group.
    pub name: String,
    /// 1 to 64 iSCSI names (`iqn.`, `eui.` or `naa.`), not those of another host.
    pub initiators: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<Chap>,
    /// Only with `chap`, and with a different secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual: Option<Chap>,
    /// Limit in IOPS for all its sessions and volumes over iSCSI: 10 to 10000000; 0: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<u64>,
    /// Limit in bytes per second for all its sessions and volumes over iSCSI, at least 1000000; 0: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes_per_second: Option<u64>,
}

/// Changes to a host. Absent fields stay as they are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostSet {
    /// The new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The new list of initiator names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiators: Option<Vec<String>>,
    /// `null`: no CHAP; the initiator name is enough.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Chap>)]
    pub chap: Option<Option<Chap>>,
    /// `null`: no mutual CHAP.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Chap>)]
    pub mutual: Option<Option<Chap>>,
    /// Limit in IOPS for all its sessions and volumes over iSCSI: 10 to 10000000; 0: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<u64>,
    /// Limit in bytes per second for all its sessions and volumes over iSCSI, at least 1000000; 0: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes_per_second: Option<u64>,
}

/// A field that is present, even as `null`. An absent field becomes `None` by its default.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    field: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(field).map(Some)
}

/// Hosts that see the same volumes under the same LUNs, such as a cluster.
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
    /// Number of volumes mapped to the group.
    pub volumes: u64,
    pub created_unix_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostGroupCreate {
    /// 1 to 63 letters, digits and `._-`, starting with a letter; not the name of another host or group.
    pub name: String,
    /// Names or UUIDs of its members.
    #[serde(default)]
    pub hosts: Vec<String>,
}

/// Changes to a host group. Absent fields stay as they are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostGroupSet {
    /// The new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The new list of members, by name or UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
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
    /// Fixed for the mapping's life, and unique for a host at a target.
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
    /// iSCSI name of the pool's target, at which the host sees the volume.
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
    /// 0 to 16383. Default: the LUN that the volume had there, or the lowest that no other volume had lately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<u16>,
    /// 512 or 4096. Default: the value of the volume's other mappings, or 512.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logical_block_bytes: Option<u32>,
}

/// An initiator that is logged in over iSCSI.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// A number, unique in the daemon's run.
    pub id: String,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// The host of the initiator; absent when no host has it any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The target's iSCSI name; absent for a discovery session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The initiator's address and port.
    pub address: String,
    /// The appliance's address and port.
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
