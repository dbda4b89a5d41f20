//! Open files: how many the process may have, and how many of them each listener's clients.
//!
//! Every client costs a descriptor, and clients come from outside: those of one protocol must not be able to take the
//! descriptors of another, nor those of disks and files. So the limit is raised as far as the system allows when the daemon
//! starts, and what there is is shared out: first to disks and files, then to the API, which mends everything else, and the
//! rest to NBD and iSCSI alike. A server admits no more clients than its share; see `admission` in `forebay-target`.

use forebay_target::{ADDRESS_SHARE, CONNECTIONS_MAX};
use rustix::process::{Resource, getrlimit, setrlimit};

/// For disks, journals and statistics, rings of the cores, and connections on their way out: some three of each disk and each
/// core of a large machine.
const RESERVED: usize = 256;
/// For the API: the connections that it admits over HTTP, and as many over the owner's socket.
const MANAGEMENT: usize = 2 * 256;
/// What NBD and iSCSI get each, however few there are: an administrator should be able to see that something works.
const CLIENTS_MIN: usize = 16;
/// With so many descriptors nobody gets less than there may be.
const WANTED: usize = RESERVED + MANAGEMENT + 2 * CONNECTIONS_MAX;

/// The descriptors of this process.
pub struct Descriptors {
    limit: usize,
}

impl Descriptors {
    /// Raises the limit as far as the process may.
    pub fn raise() -> Descriptors {
        let limit = getrlimit(Resource::Nofile);
        let raised = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit });
        let now = if raised.is_ok() { limit.maximum } else { limit.current };
        Descriptors { limit: now.map_or(usize::MAX, |now| usize::try_from(now).unwrap_or(usize::MAX)) }
    }

    /// Clients that NBD may have, and as many iSCSI.
    pub fn clients(&self) -> usize {
        (self.limit.saturating_sub(RESERVED + MANAGEMENT) / 2).clamp(CLIENTS_MIN, CONNECTIONS_MAX)
    }

    /// What an administrator should know, when there are too few.
    pub fn shortage(&self) -> Option<String> {
        (self.limit < WANTED).then(|| {
            format!(
                "the limit is {} open files, so NBD and iSCSI admit {} clients each, {} of them from one address, instead of \
                 {CONNECTIONS_MAX} and {}. Raise the limit to {WANTED} and restart: LimitNOFILE= of the service, or \
                 ulimit -n",
                self.limit,
                self.clients(),
                self.clients() / ADDRESS_SHARE,
                CONNECTIONS_MAX / ADDRESS_SHARE
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_disks_files_and_the_api_leave() {
        for (limit, clients) in [
            (64, CLIENTS_MIN),
            (RESERVED + MANAGEMENT, CLIENTS_MIN),
            (1024, 128),
            (2048, 640),
            (WANTED - 1, CONNECTIONS_MAX - 1),
            (WANTED, CONNECTIONS_MAX),
            (usize::MAX, CONNECTIONS_MAX),
        ] {
            let descriptors = Descriptors { limit };
            assert_eq!(descriptors.clients(), clients, "{limit}");
            let shortage = descriptors.shortage();
            assert_eq!(shortage.is_none(), limit >= WANTED, "{limit}");
            assert!(shortage.is_none_or(|text| text.contains(&format!(", {} of them", clients / 4))));
            if limit >= 1024 {
                assert!(RESERVED + MANAGEMENT + 2 * clients <= limit.max(WANTED));
            }
        }
    }

    #[test]
    fn the_limit_is_raised_to_what_the_system_allows() {
        let before = getrlimit(Resource::Nofile);
        let descriptors = Descriptors::raise();
        let after = getrlimit(Resource::Nofile);
        assert_eq!((after.current, after.maximum), (before.maximum, before.maximum));
        assert_eq!(after.current, Some(descriptors.limit as u64).filter(|_| before.maximum.is_some()));
    }
}
