//! Does the hot path allocate? Method: an allocator that counts, around READ and WRITE from the CDB to the answer.

use forebay_base::Id;
use forebay_pool::SyncPolicy;
use forebay_runtime::Arena;
use forebay_scsi::{
    BlockFormat, DataOut, InitiatorPort, Nexus, Outcome, Status, Step, Unit, UnitConfig, parse,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is the system's allocator's; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn reads_and_writes_allocate_nothing() {
    let arena = Arena::new();
    let config = UnitConfig {
        id: Id(1),
        size: 1 << 20,
        volume_block: 8192,
        format: BlockFormat::B512,
        sync: SyncPolicy::Always,
        read_only: false,
        target_name: "iqn.2026-11.io.forebay:tank".into(),
        portal_groups: vec![1],
    };
    let mut unit = Unit::new(config, arena.clone(), None).expect("no state");
    let initiator = InitiatorPort::new("iqn.2026-11.example:a", [1; 6]).expect("a proper name");
    let nexus = unit.attach(Nexus { initiator, portal_group: 1 }).expect("room");
    let ready = parse(&[0; 6]).expect("well formed");
    let _ = unit.begin(nexus, &ready, DataOut::default());

    let ten = |opcode| [opcode, 0x08, 0, 0, 0, 16, 0, 0, 16, 0];
    let sixteen = |opcode| [opcode, 0x08, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 16, 0, 0];
    let cdbs: [&[u8]; 4] = [&ten(0x28), &ten(0x2a), &sixteen(0x88), &sixteen(0x8a)];
    for cdb in cdbs {
        let part = arena.copy(&[7; 8192]).freeze();
        // What the transport and the volume would make; only what happens between them counts.
        let (parts, read) = (vec![part.clone()], vec![part]);
        let before = ALLOCATIONS.get();
        let command = parse(cdb).expect("well formed");
        assert_eq!(command.data_out_len(512) > 0, cdb[0] & 2 != 0);
        let Step::Medium(op, task) = unit.begin(nexus, &command, DataOut { parts, announced: 8192 }) else {
            panic!("it needs the volume")
        };
        let outcome = if cdb[0] & 2 == 0 { Outcome::Data(read) } else { Outcome::Done };
        let Step::Done(response) = unit.resume(task, Ok(outcome)) else { panic!("that was all") };
        assert_eq!(ALLOCATIONS.get(), before, "{cdb:02x?}");
        assert_eq!(response.status, Status::Good);
        drop((op, response));
    }
}
