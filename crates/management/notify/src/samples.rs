//! Alerts and messages for this crate's tests.

use crate::notice::{Appliance, Change, Content, Message, Standing};
use forebay_api::{Alert, AlertObject, AlertSeverity};

pub fn alert(id: &str, severity: AlertSeverity) -> Alert {
    Alert {
        id: id.into(),
        severity,
        since_unix_ms: 1_767_225_600_000,
        object: AlertObject { resource: "pools".into(), name: "tank".into() },
        cause: "Disk 3 of pool tank failed.".into(),
        impact: "One more failure loses data.".into(),
        action: "Replace the disk.".into(),
        command: Some("forebay disk replace tank/3".into()),
    }
}

pub fn appliance() -> Appliance {
    Appliance { name: "nas1.example.com".into(), id: "6f1c2b1e-5a0c-4d9f-9f3e-0a1b2c3d4e5f".into() }
}

pub fn message(content: Content) -> Message {
    Message { id: "00000000000000aa-1".into(), at_unix_ms: 1_767_225_660_000, content, lost: 0 }
}

pub fn raised(alert: &Alert) -> Change {
    Change::new(alert, Standing::Standing, 1_767_225_600_500)
}

pub fn cleared(alert: &Alert) -> Change {
    Change::new(alert, Standing::Cleared, 1_767_229_200_000)
}
