//! The one program: daemon, demonstration, offline check and command line.
//!
//! This crate only wires up. It alone sees both the engine and the API, so that neither knows the other.

mod appliance;
mod check;
mod demo;
mod descriptors;
mod examine;
mod iscsi;
mod live;
mod load;
mod model;
mod notify;
mod progress;
mod validate;

use std::process::ExitCode;

fn main() -> ExitCode {
    forebay_base::panics::abort_on_panic();
    // A command whose reader went away (`forebay event list | head`) ends quietly, as programs do. The daemon undoes
    // this: its clients go away all the time.
    set_broken_pipe(libc::SIG_DFL);
    let local = forebay_cli::Local {
        serve: appliance::serve,
        demo: demo::run,
        check: check::run,
        examine: examine::examine,
        model: model::model,
        validate: validate::validate,
    };
    ExitCode::from(forebay_cli::run(std::env::args_os(), &local))
}

/// What happens on SIGPIPE: `SIG_DFL` ends the process, `SIG_IGN` makes the write fail.
fn set_broken_pipe(disposition: libc::sighandler_t) {
    // SAFETY: neither disposition runs code of ours.
    unsafe { libc::signal(libc::SIGPIPE, disposition) };
}
