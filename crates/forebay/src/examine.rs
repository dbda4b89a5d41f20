//! What can be said about the daemon's options without starting it: what they name is looked at with the code that would use it.

use forebay_cli::{Failure, Finding, ServeOptions};
use forebay_control::{check_certificate, problem};
use forebay_target::Portal;

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
    findings
}
