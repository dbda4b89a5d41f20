//! A channel as the reporter takes it: settings with a name. Nothing here is trusted until [`Channel::check`] found nothing to complain about.

use forebay_api::ChannelSpec;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Channel {
    /// UUID: a channel keeps its queue as long as it keeps this.
    pub id: String,
    /// Unique; what the UI and errors call it.
    pub name: String,
    pub spec: ChannelSpec,
}
