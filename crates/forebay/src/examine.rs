//! What can be said about the daemon's options without starting it: what they name is looked at with the code that would use it.

use forebay_cli::{Failure, Finding, ServeOptions};
use forebay_control::{check_certificate, problem};
use forebay_target::Portal;
use std::net::{SocketAddr, ToSocketAddrs};

/// Everything that would keep the daemon from starting, as far as it can be seen from here.
pub fn examine(options: &ServeOptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |key: &str, outcome: Result<(), Failure>| {
        if let Err(failure) = outcome {
            let object = failure.object.map(|object| format!("{object}: ")).unwrap_or_default();
            let problem = format!("{object}{}", failure.detail);
            findings.push(Finding { key: key.into(), problem, allowed: failure.remedy.unwrap_or_default() });
        }
    };
    if let Some((certificate, key)) = &options.http_tls {
        find("http-cert", check_certificate(certificate, key).map_err(Failure::from));
    }
    if let Some(listen) = &options.nbd {
        let checked = crate::appliance::nbd_config(listen, options).check();
        let key = match &checked {
            Err(error) if error.object != *listen => "nbd-tls-cert",
            _ => "nbd",
        };
        find(key, checked.map_err(|error| problem(error).into()));
    }
    for (listen, group) in options.iscsi.iter().zip(1..) {
        let portal = Portal { listen: listen.clone(), group };
        find("iscsi", portal.address().map(drop).map_err(|error| problem(error).into()));
    }
    find("memory", crate::appliance::memory_bytes(options).map(drop));
    findings.extend(same_addresses(options));
    findings
}

/// Listeners that would be in each other's way, under the key that somebody has set.
fn same_addresses(options: &ServeOptions) -> Vec<Finding> {
    let nbd = options.nbd.as_deref().filter(|listen| !listen.starts_with("unix:"));
    let iscsi = options.iscsi.iter().map(|listen| ("iscsi", listen.as_str()));
    let all =
        [("listen", options.listen.as_str())].into_iter().chain(nbd.map(|nbd| ("nbd", nbd))).chain(iscsi);
    let all: Vec<(&str, &str)> = all.collect();
    let is_default = |key: &str| options.defaults.iter().any(|default| default == key);
    let mut findings: Vec<Finding> = Vec::new();
    for (at, &(key, listen)) in all.iter().enumerate() {
        let Some((other, _)) = all[..at].iter().find(|(_, other)| is_same(other, listen)) else { continue };
        let (key, other) = if is_default(key) { (*other, key) } else { (key, *other) };
        findings.push(Finding {
            key: key.into(),
            problem: format!("`{listen}` is the address of `{other}`, too"),
            allowed: "an address and port at which nothing else listens".into(),
        });
    }
    findings
}

/// Whether one of these cannot be listened at beside the other.
fn is_same(one: &str, other: &str) -> bool {
    let resolve = |listen: &str| listen.to_socket_addrs().map(Iterator::collect::<Vec<SocketAddr>>);
    let (Ok(ones), Ok(others)) = (resolve(one), resolve(other)) else { return one == other };
    // All addresses of IPv6 are those of IPv4, too.
    let covers = |one: &SocketAddr, other: &SocketAddr| {
        one.ip() == other.ip() || one.ip().is_unspecified() && (one.is_ipv6() || other.is_ipv4())
    };
    ones.iter().any(|one| {
        // Port 0 is one that is free.
        let same_port = |other: &&SocketAddr| one.port() == other.port() && one.port() != 0;
        others.iter().filter(same_port).any(|other| covers(one, other) || covers(other, one))
    })
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn an_address_is_taken_by_itself_and_by_all_addresses() {
        for (one, other, same) in [
            ("127.0.0.1:8080", "127.0.0.1:8080", true),
            ("127.0.0.1:8080", "127.0.0.1:8081", false),
            ("127.0.0.1:8080", "127.0.0.2:8080", false),
            ("0.0.0.0:8080", "127.0.0.1:8080", true),
            ("[::]:8080", "127.0.0.1:8080", true),
            ("0.0.0.0:8080", "[::1]:8080", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
            ("no such name:1", "no such name:1", true),
        ] {
            assert_eq!((is_same(one, other), is_same(other, one)), (same, same), "{one} {other}");
        }
    }
}
