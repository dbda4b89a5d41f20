//! Names of initiators and targets, and what CHAP asks of users and secrets.
//!
//! RFC 7143, 4.2.7: a name is `iqn.`, a year and month, a reversed domain and what its owner likes; or `eui.` or `naa.` with
//! hexadecimal digits. Names are compared in the form that RFC 3722 prepares; for ASCII that is lower case. Other
//! letters need tables of Unicode 3.2 that would be wrong for today's initiators, and none in use has such a name: they
//! are refused. An underscore is not in the RFC's list either, but initiators have it and targets take it.

use crate::hosts::{Credentials, INITIATORS_MAX};
use crate::rules::{invalid, shown};
use forebay_api::{Chap, Problem};

/// RFC 7143, 4.2.7.1.
const NAME_BYTES_MAX: usize = 223;
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 12..=255;
const USER_BYTES_MAX: usize = 255;
const TARGET_PREFIX: &str = "iqn.2026-11.io.forebay:";

/// The iSCSI name of a pool's target. A pool's name may have an underscore, which not every initiator takes from a
/// target; it becomes a colon, which no pool's name has. So only names that differ in case meet.
pub fn target_name(pool: &str) -> String {
    format!("{TARGET_PREFIX}{}", pool.to_ascii_lowercase().replace('_', ":"))
}

/// Whether a pool can have a target of this name.
pub fn is_target(name: &str) -> bool {
    name.starts_with(TARGET_PREFIX) && initiator(name).as_deref() == Some(name)
}

/// A name as it is compared.
fn initiator(name: &str) -> Option<String> {
    let name = name.trim().to_ascii_lowercase();
    let is_name = |c: u8| c.is_ascii_alphanumeric() || b"-.:_".contains(&c);
    let hexadecimal = |digits: &str, counts: &[usize]| {
        counts.contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    };
    let well_formed = match name.split_at_checked(4)? {
        ("iqn.", rest) => {
            let (date, owner) = rest.split_once('.')?;
            let (year, month) = date.split_once('-')?;
            let is_number = |text: &str, digits: usize| {
                text.len() == digits && text.bytes().all(|digit| digit.is_ascii_digit())
            };
            let is_month = is_number(month, 2) && ("01"..="12").contains(&month);
            let starts_well = owner.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
            is_number(year, 4) && is_month && starts_well && owner.bytes().all(is_name)
        }
        ("eui.", digits) => hexadecimal(digits, &[16]),
        ("naa.", digits) => hexadecimal(digits, &[16, 32]),
        _ => false,
    };
    (well_formed && name.len() <= NAME_BYTES_MAX).then_some(name)
}

/// Initiator names in lower case, each once.
pub fn initiators(names: &[String]) -> Result<Vec<String>, Problem> {
    if names.is_empty() || names.len() > INITIATORS_MAX {
        let detail = format!("{} initiator names are given", names.len());
        return Err(invalid("initiators", detail, "Give 1 to 64."));
    }
    let mut all = Vec::new();
    for name in names {
        let Some(lower) = initiator(name) else {
            return Err(invalid(
                "initiators",
                format!("`{}` is not an iSCSI name", shown(name)),
                "A name starts with iqn., a year and month and a reversed domain, like iqn.1993-08.org.debian:01:abc. Names with eui. or naa. have \
                 hexadecimal digits. On Linux, the name is in /etc/iscsi/initiatorname.iscsi.",
            ));
        };
        if all.contains(&lower) {
            return Err(invalid("initiators", format!("{lower} is given twice"), "Give each name once."));
        }
        all.push(lower);
    }
    Ok(all)
}

fn credentials(field: &str, chap: &Chap) -> Result<Credentials, Problem> {
    let is_user = |c: u8| c.is_ascii_alphanumeric() || b".-+@_/[]:".contains(&c);
    let user = &chap.user;
    if !(1..=USER_BYTES_MAX).contains(&user.len()) || !user.bytes().all(is_user) {
        let detail = format!("`{}` is not a CHAP user name", shown(user));
        let remedy = "Use 1 to 255 letters, digits and `.-+@_/[]:`.";
        return Err(invalid(&format!("{field}.user"), detail, remedy));
    }
    if !SECRET_BYTES.contains(&chap.secret.len()) || chap.secret.chars().any(char::is_control) {
        let detail =
            format!("a secret of {} bytes or with control characters cannot be used", chap.secret.len());
        let remedy =
            "Give 12 to 255 bytes. 16 random characters are a good choice; some initiators accept no more.";
        return Err(invalid(&format!("{field}.secret"), detail, remedy));
    }
    Ok(Credentials { user: user.clone(), secret: chap.secret.clone() })
}

pub fn chap(chap: Option<&Chap>) -> Result<Option<Credentials>, Problem> {
    chap.map(|chap| credentials("chap", chap)).transpose()
}

pub fn mutual(chap: Option<&Chap>) -> Result<Option<Credentials>, Problem> {
    chap.map(|chap| credentials("mutual", chap)).transpose()
}

/// What both directions together must be.
pub fn both(chap: Option<&Credentials>, mutual: Option<&Credentials>) -> Result<(), Problem> {
    match (chap, mutual) {
        (None, Some(_)) => Err(invalid(
            "mutual",
            "mutual CHAP needs CHAP for the host, too".into(),
            "Give the host a CHAP user and secret, too.",
        )),
        // RFC 7143, 12.1.3: else each side could let the other answer its own challenge.
        (Some(chap), Some(mutual)) if chap.secret == mutual.secret => Err(invalid(
            "mutual.secret",
            "both directions have the same secret".into(),
            "Choose another secret for the target.",
        )),
        _ => Ok(()),
    }
}

/// 512 or 4096.
pub fn logical_block(bytes: Option<u32>) -> Result<(), Problem> {
    match bytes {
        None | Some(512 | 4096) => Ok(()),
        Some(bytes) => Err(invalid(
            "logical_block_bytes",
            format!("{bytes} bytes is not a logical block size"),
            "Give 512, which every host accepts, or 4096.",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::Code;

    #[test]
    fn initiator_names() {
        let of = |name: &str| initiators(&[name.to_string()]).map(|names| names[0].clone());
        for (name, lower) in [
            ("iqn.1993-08.org.debian:01:AbC", "iqn.1993-08.org.debian:01:abc"),
            (
                "IQN.2007-10.com.github:sahlberg:libiscsi:iscsi-test-cu",
                "iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-test-cu",
            ),
            ("iqn.1991-05.com.microsoft:host_1.example.com", "iqn.1991-05.com.microsoft:host_1.example.com"),
            ("eui.02004567A425678D", "eui.02004567a425678d"),
            ("naa.52004567BA64678D", "naa.52004567ba64678d"),
            ("naa.62004567BA64678D0123456789ABCDEF", "naa.62004567ba64678d0123456789abcdef"),
            (" iqn.2001-04.com.example\n", "iqn.2001-04.com.example"),
        ] {
            assert_eq!(of(name).unwrap(), lower);
        }
        let long = format!("iqn.2001-04.com.{}", "x".repeat(208));
        assert_eq!(of(&long[..223]).unwrap().len(), 223);
        for name in [
            "",
            "iqn",
            "iqn.",
            "host",
            "iqn.2001-04",
            "iqn.2001-04.",
            "iqn.2001-13.com.example",
            "iqn.2001-4.com.example",
            "iqn.200-04.com.example",
            "iqn.2001-04.:x",
            "iqn.2001-04.com.ex ample",
            "iqn.2001-04.com.exämple",
            "iqn.2001-04.com/example",
            "eui.02004567A425678",
            "eui.02004567A425678G",
            "naa.52004567BA64678D0",
            "ïqn.2001-04.com.example",
            &long,
        ] {
            let problem = of(name).expect_err(name);
            assert_eq!((problem.code, problem.field.as_deref()), (Code::Invalid, Some("initiators")));
        }
        assert!(initiators(&[]).is_err() && initiators(&vec![long[..100].to_string(); 65]).is_err());
        let twice = ["eui.02004567A425678D", "EUI.02004567a425678d"].map(String::from);
        assert!(initiators(&twice).unwrap_err().detail.contains("twice"));
    }

    #[test]
    fn targets_are_valid_names_and_differ_unless_case_alone_does() {
        assert_eq!(target_name("Tank"), "iqn.2026-11.io.forebay:tank");
        assert_eq!(target_name("a_b-c.d"), "iqn.2026-11.io.forebay:a:b-c.d");
        let longest = target_name(&"x".repeat(63));
        assert_eq!(initiator(&longest).as_deref(), Some(longest.as_str()));
    }

    #[test]
    fn secrets() {
        let of = |user: &str, secret: &str| Chap { user: user.into(), secret: secret.into() };
        let long = "x".repeat(256);
        for secret in ["0123456789ab", &long[1..], "with spaces and ü"] {
            chap(Some(&of("esx1", secret))).unwrap();
        }
        for (user, secret, field) in [
            ("", "0123456789ab", "chap.user"),
            ("a b", "0123456789ab", "chap.user"),
            (&long, "0123456789ab", "chap.user"),
            ("u", "0123456789a", "chap.secret"),
            ("u", &long, "chap.secret"),
            ("u", "0123456789ab\n", "chap.secret"),
        ] {
            let problem = chap(Some(&of(user, secret))).unwrap_err();
            assert_eq!(problem.field.as_deref(), Some(field));
            assert!(!format!("{problem:?}").contains("0123456789a"), "no secret in {problem:?}");
        }
        let credentials = |secret: &str| Credentials { user: "u".into(), secret: secret.into() };
        let (a, b) = (credentials("0123456789ab"), credentials("0123456789cd"));
        both(None, None).unwrap();
        both(Some(&a), Some(&b)).unwrap();
        assert!(both(None, Some(&b)).is_err() && both(Some(&a), Some(&a)).is_err());
    }

    #[test]
    fn logical_blocks() {
        for bytes in [None, Some(512), Some(4096)] {
            logical_block(bytes).unwrap();
        }
        for bytes in [0, 520, 8192] {
            assert!(logical_block(Some(bytes)).is_err());
        }
    }
}
