//! Do initiator and target understand each other, whatever they agreed on; and does a target refuse what it must?

mod conversations;
mod hostile;
mod logins;
mod support;
