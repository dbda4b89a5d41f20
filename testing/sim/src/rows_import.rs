//! Rows of the matrix about imports that are not the usual ones.

use crate::crash;
use crate::harness::Failure;
use crate::matrix::Shown;
use crate::setup::Setup;
use crate::verify::{Demand, verify};
use forebay_base::Random;
use forebay_pool::Layout;
use forebay_simulation::{Cursor, Event, Fate};

/// Power losses that one run is judged at.
const MOMENTS: u64 = 16;

/// The power goes; an import that must not write shows all that a usual one shows, also without a disk, and leaves every byte as
/// it was; then comes a usual one.
pub fn read_only(setup: &Setup) -> Result<Shown, Failure> {
    let run = crash::record(setup)?;
    let mut random = Random::new(setup.seed ^ 0x4ead);
    let events = run.recording.events.len() as u64;
    let mut moments: Vec<usize> = (0..MOMENTS).map(|_| random.below(events + 1) as usize).collect();
    moments.sort_unstable();
    let mut cursor = Cursor::new(&run.recording);
    let (mut tick, mut shown) = (0, Shown::default());
    for moment in moments {
        while cursor.position() < moment {
            if let Some(Event::Mark(mark)) = cursor.advance() {
                tick = *mark;
            }
        }
        let fates: Vec<Fate> = cursor
            .pending()
            .map(|(_, write)| match random.below(4) {
                0 => Fate::Lost,
                1 if write.sectors() > 1 => Fate::Head(1 + random.below(write.sectors() as u64 - 1) as usize),
                _ => Fate::Whole,
            })
            .collect();
        let images = cursor.crash(&fates);
        let is_lacking = setup.layout != Layout::Single && random.one_in(2);
        let absent = if is_lacking { 1 << random.below(setup.data_disks() as u64) } else { 0 };
        let usual = Demand { at: tick, absent, ..Demand::STRICT };
        let reading = Demand { read_only: true, check: false, ..usual };
        let told = |failure: Failure, what: &str| {
            let position = cursor.position();
            failure
                .because(&format!("{what} after event {position} (tick {tick}), without disks {absent:#b}"))
        };
        verify(setup, images.clone(), &run.history, reading, random.next_u64())
            .map_err(|failure| told(failure, "imported to be read only"))?;
        verify(setup, images, &run.history, usual, random.next_u64())
            .map_err(|failure| told(failure, "imported as usual"))?;
        shown += Shown { cases: 2, ..Shown::default() };
    }
    Ok(shown)
}
