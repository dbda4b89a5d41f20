//! One mail over SMTP (RFC 5321): the connection, the login, and which recipients the server takes.
//!
//! lettre speaks SMTP; connection and TLS are this crate's own, so that all channels trust the same authorities in the same way. STARTTLS (RFC 3207) is therefore
//! negotiated here, a byte at a time: nothing that arrived before the handshake is taken for an answer after it. lettre then sees a
//! protected connection that begins with a greeting.
//!
//! A recipient that the server refuses does not keep the mail from the others: an operator who left must not silence the appliance.

use crate::connect::{self, Io, io_failure};
use crate::failure::{Failure, Retry};
use crate::mail::compose;
use crate::notice::{Appliance, Message};
use crate::text::line;
use forebay_api::{Mail, MailSecurity};
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream};
use lettre::transport::smtp::commands::{Data, Mail as MailFrom, Rcpt};
use lettre::transport::smtp::extension::ClientId;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

/// All that a server says in one conversation is some KiB, in some dozens of lines. lettre reads a reply from its beginning with each line that comes, so many short
/// lines would keep a processor busy.
const ANSWERS_BYTES_MAX: usize = 32 << 10;
const ANSWERS_LINES_MAX: usize = 512;
const REPLY_BYTES_MAX: usize = 16 << 10;
/// A wrong password does not become right in seconds, and many attempts lock accounts.
const LOGIN_RETRY: Duration = Duration::from_secs(600);

/// Delivers a mail. `Ok(Some(…))`: some recipients were refused, and that says which.
pub async fn deliver(
    mail: &Mail,
    appliance: &Appliance,
    message: &Message,
) -> Result<Option<String>, Failure> {
    let (host, port) = (&*mail.host, mail.port.unwrap_or(mail.security.port()));
    let Some((envelope, letter)) = compose(&mail.from, &mail.to, appliance, message) else {
        return Err(Failure::is_final(
            "A mail address of the channel is not valid",
            "Correct the sender and the recipients.",
        ));
    };
    let hello = appliance.host_name();
    let mut tcp = connect::tcp(host, port).await?;
    let (stream, greeting): (Box<dyn Io>, &'static [u8]) = match mail.security {
        MailSecurity::None => (Box::new(tcp), b""),
        MailSecurity::Tls => (connect::tls(tcp, host, port, mail.ca_pem.as_deref()).await?, b""),
        MailSecurity::StartTls => {
            start_tls(&mut tcp, host, port, &hello).await?;
            (connect::tls(tcp, host, port, mail.ca_pem.as_deref()).await?, b"220 protected\r\n")
        }
    };
    let stream =
        Box::new(Bounded { greeting, bytes: ANSWERS_BYTES_MAX, lines: ANSWERS_LINES_MAX, inner: stream });
    let server = Server { host, port };
    let mut connection = AsyncSmtpConnection::connect_with_transport(stream, &ClientId::Domain(hello))
        .await
        .map_err(|error| server.failure("did not answer the appliance as a mail server", &error))?;
    if let Some(login) = &mail.login {
        let credentials = Credentials::new(login.user.clone(), login.password.expose().to_owned());
        connection.auth(&[Mechanism::Plain, Mechanism::Login], &credentials).await.map_err(|error| {
            let mut failure = server.login_failure(&error);
            if error.is_permanent() || error.is_client() {
                failure.retry = Retry::After(LOGIN_RETRY);
                failure.remedy =
                    "Check user and password of the channel, and that the account may send mail over SMTP."
                        .into();
            }
            failure
        })?;
    }
    connection
        .command(MailFrom::new(envelope.from().cloned(), vec![]))
        .await
        .map_err(|error| server.failure("did not accept the sender", &error))?;
    let mut refused = Vec::new();
    for to in envelope.to() {
        if let Err(error) = connection.command(Rcpt::new(to.clone(), vec![])).await {
            if error.status().is_none() {
                return Err(server.failure("closed the connection", &error));
            }
            refused.push((to, error));
        }
    }
    if let [(_, first), ..] = &*refused
        && refused.len() == envelope.to().len()
    {
        // Any that may be taken later keeps the mail.
        let worth = refused.iter().find(|(_, error)| error.is_transient()).map_or(first, |(_, error)| error);
        return Err(server.failure("refused every recipient", worth));
    }
    connection.command(Data).await.map_err(|error| server.failure("did not accept the mail", &error))?;
    connection.message(&letter).await.map_err(|error| server.failure("did not accept the mail", &error))?;
    // The mail is the server's now, whatever it says to this.
    let _ = connection.quit().await;
    let note = |(to, error): &(&lettre::Address, lettre::transport::smtp::Error)| {
        format!("{to} was refused ({})", line(&describe(error), 160))
    };
    Ok((!refused.is_empty()).then(|| refused.iter().map(note).collect::<Vec<_>>().join("; ")))
}

struct Server<'a> {
    host: &'a str,
    port: u16,
}

impl Server<'_> {
    fn failure(&self, what: &str, error: &lettre::transport::smtp::Error) -> Failure {
        let message = format!("{}:{} {what}: {}", self.host, self.port, line(&describe(error), 300));
        if error.is_permanent() {
            return Failure::is_final(message, "Do what the server's answer says, and send a test message.");
        }
        Failure::passing(message, "Check the mail server's log.")
    }
}

impl Server<'_> {
    /// Without the server's words: some answer with what they were sent, and that was the password.
    fn login_failure(&self, error: &lettre::transport::smtp::Error) -> Failure {
        let code = error.status().map_or(String::new(), |code| format!(" ({code})"));
        let message = format!("{}:{} did not accept the login{code}", self.host, self.port);
        Failure::passing(message, "Check the mail server's log; the appliance tries again.")
    }
}

/// The error with its cause, where lettre says the one in the other.
fn describe(error: &lettre::transport::smtp::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// Greeting, EHLO and STARTTLS. What follows on the stream is the handshake.
async fn start_tls(stream: &mut TcpStream, host: &str, port: u16, hello: &str) -> Result<(), Failure> {
    let failed = |error| io_failure(host, port, "closed the connection before TLS", &error);
    let unexpected = |reply: &str| {
        let message = format!("{host}:{port} did not begin TLS: {}", line(reply.trim(), 200));
        Failure::passing(message, "Check the mail server's log.")
    };
    let greeting = read_reply(stream).await.map_err(failed)?;
    if !greeting.starts_with("220") {
        return Err(unexpected(&greeting));
    }
    stream.write_all(format!("EHLO {hello}\r\n").as_bytes()).await.map_err(failed)?;
    let extensions = read_reply(stream).await.map_err(failed)?;
    let offers = |text: &str| text.get(4..).is_some_and(|word| word.trim().eq_ignore_ascii_case("STARTTLS"));
    if !extensions.starts_with("250") || !extensions.lines().any(offers) {
        return Err(Failure::passing(
            format!("{host}:{port} does not offer STARTTLS"),
            "Use tls if the port expects TLS from the first byte (465), or turn TLS on in the mail server.",
        ));
    }
    stream.write_all(b"STARTTLS\r\n").await.map_err(failed)?;
    let ready = read_reply(stream).await.map_err(failed)?;
    if ready.starts_with("220") { Ok(()) } else { Err(unexpected(&ready)) }
}

/// One reply, of several lines perhaps, and not a byte more (RFC 5321, section 4.2.1).
async fn read_reply(stream: &mut TcpStream) -> io::Result<String> {
    let mut reply = Vec::new();
    let mut begin = 0;
    while reply.len() < REPLY_BYTES_MAX {
        reply.push(stream.read_u8().await?);
        if reply.ends_with(b"\n") {
            let is_last = reply[begin..].get(3) != Some(&b'-');
            if is_last {
                return Ok(String::from_utf8_lossy(&reply).into_owned());
            }
            begin = reply.len();
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "a reply without an end"))
}

/// A stream of at most so many bytes and lines from the peer, after a greeting of our own.
#[derive(Debug)]
struct Bounded {
    greeting: &'static [u8],
    bytes: usize,
    lines: usize,
    inner: Box<dyn Io>,
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.greeting.is_empty() {
            let (now, later) = self.greeting.split_at(self.greeting.len().min(buf.remaining()));
            buf.put_slice(now);
            self.greeting = later;
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        let got = &buf.filled()[before..];
        let lines = got.iter().filter(|byte| **byte == b'\n').count();
        match (self.bytes.checked_sub(got.len()), self.lines.checked_sub(lines)) {
            (Some(bytes), Some(lines)) => (self.bytes, self.lines) = (bytes, lines),
            _ => {
                let error = io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the server sends more than a mail server would",
                );
                return Poll::Ready(Err(error));
            }
        }
        polled
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl AsyncTokioStream for Bounded {
    /// lettre only passes it on to callers that ask.
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok((Ipv4Addr::UNSPECIFIED, 0).into())
    }
}
