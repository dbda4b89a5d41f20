//! CHAP with open-iscsi: who proves itself gets in, who does not is kept out, in both directions and for discovery, too.
//!
//! Every login here is also tried with the wrong secret and without any: a target that lets everybody in fails, and an
//! initiator's own refusal of a target that cannot prove itself is seen as such.

use super::machine::Machine;
use super::target::{Proof, Target};
use crate::host::{Context, Outcome};

const GUEST: Proof = Proof { user: "guest", secret: "the-guests-own-secret" };
const TARGET: Proof = Proof { user: "pool", secret: "the-pools-own-secret" };
const WRONG: &str = "not-what-was-agreed";
/// What iscsiadm(8) ends with: the target does not let the guest in, and the guest does not want the target.
const REFUSED: i32 = 24;
const GIVEN_UP: i32 = 19;

/// Nobody is logged in, before and after.
pub fn prove(machine: &mut Machine, target: &Target, portal: &str) -> Outcome<String> {
    let mut login =
        Login { machine, portal, node: format!("iscsiadm -m node -T {} -p {portal}", Target::IQN) };

    target.demand_chap(GUEST, None)?;
    login.fails(REFUSED).context("without a secret")?;
    login.offer("SHA256", &[("username", GUEST.user), ("password", WRONG)])?;
    login.fails(REFUSED).context("with a wrong secret")?;
    login.offer("SHA256", &[("username", "somebody"), ("password", GUEST.secret)])?;
    login.fails(REFUSED).context("with another's name")?;
    login.offer("SHA256", &[("username", GUEST.user), ("password", GUEST.secret)])?;
    login.succeeds().context("with the secret and SHA-256")?;

    target.demand_chap(GUEST, Some(TARGET))?;
    login.offer("MD5", &[("username_in", TARGET.user), ("password_in", WRONG)])?;
    login.fails(GIVEN_UP).context("to a target that does not prove itself")?;
    login.offer("MD5", &[("password_in", TARGET.secret)])?;
    login.succeeds().context("with both secrets and MD5")?;
    login.discovery()?;
    Ok(String::new())
}

struct Login<'a> {
    machine: &'a mut Machine,
    portal: &'a str,
    node: String,
}

impl Login<'_> {
    /// What the guest's next logins offer; what is not named stays.
    fn offer(&mut self, algorithm: &str, settings: &[(&str, &str)]) -> Outcome {
        for (name, value) in [("authmethod", "CHAP"), ("chap_algs", algorithm)].iter().chain(settings) {
            let node = &self.node;
            self.machine.run(&format!("{node} -o update -n node.session.auth.{name} -v {value}"))?;
        }
        Ok(())
    }

    fn fails(&mut self, expected: i32) -> Outcome {
        let (status, said) = self.machine.run_any(&format!("{} --login", self.node))?;
        if status == expected {
            return Ok(());
        }
        Err(self
            .machine
            .failed(&format!("a login ended with status {status} instead of {expected}:\n{said}")))
    }

    /// It gets in, and what it finds behind the door works.
    fn succeeds(&mut self) -> Outcome {
        self.machine.run(&format!("{} --login", self.node))?;
        let device = self.machine.device(&Target::path(self.portal, Target::LUN))?;
        self.machine.run(&format!("sg_dd if={device} iflag=sgio of=/dev/null bs=512 count=8"))?;
        // What multipath has made of it meanwhile, if anything, would hold on to the devices.
        self.machine.run("udevadm settle; multipath -F; true")?;
        self.machine.run(&format!("{} --logout", self.node)).map(|_| ())
    }

    /// SendTargets tells its targets to who proves itself.
    fn discovery(&mut self) -> Outcome {
        let record = format!("iscsiadm -m discoverydb -t sendtargets -p {}", self.portal);
        self.machine.run(&format!("{record} -o new"))?;
        let discover = format!("{record} --discover -o nonpersistent");
        for (secret, is_right) in [(None, false), (Some(WRONG), false), (Some(GUEST.secret), true)] {
            if let Some(secret) = secret {
                for (name, value) in [("authmethod", "CHAP"), ("username", GUEST.user), ("password", secret)]
                {
                    let setting = format!("discovery.sendtargets.auth.{name}");
                    self.machine.run(&format!("{record} -o update -n {setting} -v {value}"))?;
                }
            }
            let (status, said) = self.machine.run_any(&discover)?;
            if (status == 0 && said.contains(Target::IQN)) != is_right {
                let with = secret.unwrap_or("none");
                return Err(format!(
                    "discovery with the secret `{with}` ended with status {status}:\n{said}"
                ));
            }
        }
        Ok(())
    }
}
