//! Does a mail server take our mails, protected and with a login, and does a mail reader find in them what a person needs? The server is aiosmtpd, the reader
//! Python's.

use crate::common::{
    Certificates, Program, alert, certificates, channel, find, free_tcp_port, read, reporter,
};
use crate::common::{wait_async, wait_for_listener};
use forebay_api::AlertSeverity::{Critical, Warning};
use forebay_notify::{Channel, Retry};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

struct Server {
    _program: Program,
    temp: TempDir,
    certificates: Certificates,
    out: PathBuf,
    mode: &'static str,
    port: u16,
}

fn server(mode: &'static str, name: &str) -> Option<Server> {
    // Debian's own Python has Debian's packages; another may come first on the PATH.
    let python = PathBuf::from("/usr/bin/python3");
    let has = Command::new(&python).args(["-c", "import aiosmtpd"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        find("aiosmtpd for /usr/bin/python3", "python3-aiosmtpd");
        return None;
    }
    let temp = tempfile::tempdir().unwrap();
    let certificates = certificates(temp.path(), name);
    let (port, out) = (free_tcp_port(), temp.path().join("out"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/receivers/smtp_server.py");
    let number = port.to_string();
    let (certificate, key) = (certificates.certificate_file.to_str()?, certificates.key_file.to_str()?);
    let arguments = [script, mode, &number, certificate, key, out.to_str()?];
    let program = Program::start(&python, &arguments.map(AsRef::as_ref), temp.path());
    wait_for_listener(port);
    Some(Server { _program: program, temp, certificates, out, mode, port })
}

impl Server {
    fn channel(&self, to: &[&str]) -> Channel {
        let security = match self.mode {
            "starttls" => "start_tls",
            "plain" => "none",
            mode => mode,
        };
        let mut delivery = json!({ "mail": {
            "host": "127.0.0.1", "port": self.port, "security": security,
            "from": "Storage <nas@example.com>", "to": to, "ca_pem": self.certificates.authority,
        } });
        if self.mode != "plain" {
            delivery["mail"]["login"] = json!({ "user": "ann", "password": "pass word" });
        }
        channel("mail", delivery)
    }

    async fn mails(&self, count: usize) -> Vec<Value> {
        wait_async("the mails", || {
            let text = read(&self.out);
            let mails: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            (mails.len() >= count).then_some(mails)
        })
        .await
    }
}

#[tokio::test]
async fn an_alert_reaches_its_recipients_complete() {
    for (mode, protected) in [("starttls", true), ("tls", true), ("plain", false)] {
        let Some(server) = server(mode, "127.0.0.1") else { return };
        let reporter = reporter(1);
        reporter.configure(vec![server.channel(&["a@example.com", "b@example.com"])]).unwrap();
        let mut alert = alert("disk.failed/tank/3", Critical);
        alert.cause = "Größe stimmt nicht.\r\nBcc: spy@example.com\r\n\r\nbody".into();
        alert.action = ".\nReplace the disk.".into();
        reporter.standing(std::slice::from_ref(&alert));
        let mail = server.mails(1).await.remove(0);
        assert_eq!(
            (mail["protected"].as_bool(), mail["login"].as_bool()),
            (Some(protected), Some(protected))
        );
        assert_eq!(mail["from"], "nas@example.com");
        assert_eq!(mail["to"], json!(["a@example.com", "b@example.com"]));
        assert_eq!(mail["defects"], json!([]));
        let headers = &mail["headers"];
        let subject = "[nas1] critical: Größe stimmt nicht.  Bcc: spy@example.com    body (pools/tank)";
        assert_eq!(headers["Subject"], subject);
        assert_eq!(
            (&headers["From"], &headers["To"]),
            (&json!("Storage <nas@example.com>"), &json!("a@example.com, b@example.com"))
        );
        assert_eq!(headers["Auto-Submitted"], "auto-generated");
        assert!(headers["Message-ID"].as_str().unwrap().ends_with("-1@nas1>"), "{headers}");
        assert_eq!(headers["Bcc"], Value::Null);
        let text = mail["text"].as_str().unwrap().replace("\r\n", "\n");
        for line in [
            "Severity:   critical",
            "State:      active since 2026-01-01 00:00:00 UTC",
            "Object:     pools/tank",
            "Impact:     One more failure loses data.",
            "Action:     . Replace the disk.",
            "Command:    forebay disk replace tank/3",
            "Appliance:  nas1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
        }
        reporter.standing(&[]);
        let cleared = server.mails(2).await.remove(1);
        assert!(cleared["headers"]["Subject"].as_str().unwrap().starts_with("[nas1] cleared: "), "{cleared}");
        wait_async("success", || (reporter.states()[0].delivered == 2).then_some(())).await;
    }
}

#[tokio::test]
async fn a_recipient_that_is_gone_does_not_keep_the_mail_from_others() {
    let Some(server) = server("starttls", "127.0.0.1") else { return };
    let reporter = reporter(1);
    let delivered = reporter.test(&server.channel(&["gone@example.com", "b@example.com"])).await.unwrap();
    assert!(delivered.note.as_ref().unwrap().contains("gone@example.com was refused"), "{delivered:?}");
    assert_eq!(server.mails(1).await[0]["to"], json!(["b@example.com"]));
    for (to, retry) in [("gone@example.com", Retry::Never), ("later@example.com", Retry::Backoff)] {
        let failure = reporter.test(&server.channel(&[to, "gone2@example.com"])).await.unwrap_err();
        assert_eq!(failure.retry, retry, "{failure}");
        assert!(failure.message.contains("refused every recipient"), "{failure}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_told_and_tried_again_later() {
    let Some(server) = server("tls", "127.0.0.1") else { return };
    let mut channel = server.channel(&["a@example.com"]);
    if let forebay_api::Delivery::Mail(mail) = &mut channel.spec.delivery {
        mail.login.as_mut().unwrap().password = forebay_api::Secret::new("wrong horse");
    }
    let failure = reporter(1).test(&channel).await.unwrap_err();
    assert!(failure.message.contains("did not accept the login"), "{failure}");
    assert!(failure.remedy.starts_with("Check user and password"), "{failure}");
    assert!(matches!(failure.retry, Retry::After(_)), "{failure:?}");
    assert!(!failure.to_string().contains("horse"));
}

#[tokio::test]
async fn a_server_that_cannot_be_trusted_learns_nothing() {
    for mode in ["starttls", "tls"] {
        let Some(server) = server(mode, "other.example.com") else { return };
        let failure = reporter(1).test(&server.channel(&["a@example.com"])).await.unwrap_err();
        assert!(failure.message.contains("its certificate is for another name"), "{failure}");
    }
    // One that does not offer STARTTLS is not used without it.
    let Some(server) = server("plain", "127.0.0.1") else { return };
    let mut channel = server.channel(&["a@example.com"]);
    if let forebay_api::Delivery::Mail(mail) = &mut channel.spec.delivery {
        mail.security = forebay_api::MailSecurity::StartTls;
    }
    let failure = reporter(1).test(&channel).await.unwrap_err();
    assert!(failure.message.contains("does not offer STARTTLS"), "{failure}");
    assert_eq!(read(&server.out), "");
    drop(server.temp);
}

#[tokio::test]
async fn a_summary_is_one_mail() {
    let Some(server) = server("tls", "127.0.0.1") else { return };
    let reporter = reporter(1);
    reporter.configure(vec![server.channel(&["a@example.com"])]).unwrap();
    let alerts: Vec<_> =
        (0..30).map(|n| alert(&format!("a{n}"), if n == 7 { Critical } else { Warning })).collect();
    reporter.standing(&alerts);
    let mail = server.mails(1).await.remove(0);
    assert_eq!(mail["headers"]["Subject"], "[nas1] summary of 30 alerts: 1 critical, 29 warning");
    let text = mail["text"].as_str().unwrap();
    assert!(text.contains("--- 1 of 30 ---") && text.contains("--- 30 of 30 ---"), "{text}");
    assert!(text.find("critical").unwrap() < text.find("--- 2 of 30 ---").unwrap());
}
