//! Which disk requests of a core are with their devices, and which wait for that.
//!
//! The backend asks before it hands a request to a device, and says when the device has answered; this decides, and knows
//! nothing else of requests. The ring and the simulated machine use the same code, so that what is tested is what ships.
//!
//! A device that hangs answers nothing and gives nothing back, so whatever it holds must not be what others need:
//!
//! - **A share.** A device has at most a quarter of what the others leave of [`Limits::ordinary`] (a *dynamic threshold*:
//!   Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). Of several that hang at once each has less, and together
//!   they never have all: when n have as much as they may, 3/(n + 3) are free.
//! - **A few always.** Whatever others hold, each device may have [`Limits::guaranteed`] requests. So one that waits has
//!   requests that its device will answer, and the answer to one of them begins the next: no search for the next one is needed,
//!   and a request costs a few comparisons.
//! - **A reserve.** Flushes, labels and superblocks ([`Class::Reserved`]) have places of their own on each device. They wait behind
//!   no data, so a disk that hangs can be taken out of service, and that recorded, while everything else waits.
//! - **What is given up** ([`Admission::give_up`]) no longer stands in the way of other devices. Requests that the device has
//!   not been given yet never reach it. The others count against their own device only, until it answers. A device that
//!   is opened, hangs and is given up again and again holds no more memory than one that hangs once.
//!
//! Within a class the requests of a device go in the order in which they came, through whichever handle.

use forebay_base::planted::{Bug, active};
use slab::Slab;
use std::collections::{HashMap, VecDeque};

/// What a request is for, as far as its place among others goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Clients' data and whatever else the layers above can do without for a while.
    Ordinary,
    /// Flushes, labels, superblocks: what records that a disk is out of service.
    Reserved,
}

/// How many requests the devices of one core may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Ordinary requests of all devices together, but for those that are guaranteed.
    pub ordinary: usize,
    /// Ordinary requests that a device may have whatever the others have.
    pub guaranteed: usize,
    /// Reserved requests of each device.
    pub reserved: usize,
}

impl Limits {
    /// For a core. Together twice what common devices queue (nr_requests is 256 for virtio and 1023 for NVMe): beyond its own
    /// queue a device costs the kernel a thread per request. Four keep any device busy, so that it is not slow because others
    /// are. A pool has a flush or two, a superblock and a label under way on a disk; eight are those of its cores'
    /// tasks that share one.
    pub const CORE: Limits = Limits { ordinary: 512, guaranteed: 4, reserved: 8 };

    /// Ordinary requests of one device, those that were given up included.
    pub const fn of_device(&self) -> usize {
        self.ordinary / 4
    }
}

/// A way to a device, opened with [`Admission::open`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandleId {
    handle: usize,
    device: usize,
    /// The n-th that was opened: another may have its place when it is forgotten.
    number: u64,
}

#[derive(Default)]
struct Handle {
    number: u64,
    is_open: bool,
    is_given_up: bool,
    /// Requests that the device has, by class.
    held: [usize; 2],
    waiting: usize,
}

struct Device<T> {
    identity: u64,
    handles: usize,
    /// Requests that it has, by class: those whose result is awaited, and those that were given up.
    held: [usize; 2],
    lost: [usize; 2],
    /// Those that it has not been given, by class.
    waiting: [VecDeque<(usize, T)>; 2],
}

/// The requests of one core. `T` is what the backend knows a request by.
pub struct Admission<T> {
    limits: Limits,
    handles: Slab<Handle>,
    devices: Slab<Device<T>>,
    /// Devices by [`crate::Geometry::identity`].
    by_identity: HashMap<u64, usize>,
    /// What the devices have, but for what was given up: the ordinary requests, and all.
    ordinary: usize,
    held: usize,
    /// What they have not been given.
    waiting: usize,
    /// Handles that were ever opened.
    opened: u64,
}

impl<T> Admission<T> {
    pub fn new(limits: Limits) -> Admission<T> {
        Admission {
            limits,
            handles: Slab::new(),
            devices: Slab::new(),
            by_identity: HashMap::new(),
            ordinary: 0,
            held: 0,
            waiting: 0,
            opened: 0,
        }
    }

    /// Another handle to the device of this identity.
    pub fn open(&mut self, identity: u64) -> HandleId {
        let device = *self.by_identity.entry(identity).or_insert_with(|| {
            self.devices.insert(Device {
                identity,
                handles: 0,
                held: [0; 2],
                lost: [0; 2],
                waiting: Default::default(),
            })
        });
        self.devices[device].handles += 1;
        self.opened += 1;
        let handle = Handle { number: self.opened, is_open: true, ..Handle::default() };
        HandleId { handle: self.handles.insert(handle), device, number: self.opened }
    }

    /// The handle's owner is gone: it is forgotten with its last request.
    pub fn close(&mut self, id: HandleId) {
        self.handles[id.handle].is_open = false;
        self.forget_unused(id);
    }

    /// A new request: given back when the device is to have it now; otherwise it waits, and [`Admission::next`] gives it.
    #[must_use]
    pub fn ask(&mut self, id: HandleId, class: Class, request: T) -> Option<T> {
        debug_assert!(!self.is_given_up(id), "nothing is asked of a handle that was given up");
        let is_first = self.waiting == 0 || self.devices[id.device].waiting[class as usize].is_empty();
        if is_first && self.has_room(id.device, class) {
            self.hold(id.handle, id.device, class);
            return Some(request);
        }
        self.waiting += 1;
        self.handles[id.handle].waiting += 1;
        self.devices[id.device].waiting[class as usize].push_back((id.handle, request));
        None
    }

    /// The device has answered a request. [`Admission::next`] is to be asked after it.
    pub fn answered(&mut self, id: HandleId, class: Class) {
        let (handle, device) = (&mut self.handles[id.handle], &mut self.devices[id.device]);
        handle.held[class as usize] -= 1;
        if handle.is_given_up {
            device.lost[class as usize] -= 1;
        } else {
            device.held[class as usize] -= 1;
            self.held -= 1;
            self.ordinary -= usize::from(class == Class::Ordinary);
        }
        self.forget_unused(id);
    }

    /// A request that the handle's device is to have now, after one was answered or given up; nothing when none may.
    #[must_use]
    pub fn next(&mut self, id: HandleId) -> Option<T> {
        if self.waiting == 0 {
            return None;
        }
        for class in [Class::Reserved, Class::Ordinary] {
            let is_any = |device: &Device<T>| !device.waiting[class as usize].is_empty();
            // The handle, and with it the device, may be forgotten.
            if self.devices.get(id.device).is_some_and(is_any) && self.has_room(id.device, class) {
                let waiting = &mut self.devices[id.device].waiting[class as usize];
                let (handle, request) = waiting.pop_front().expect("there is one");
                self.handles[handle].waiting -= 1;
                self.waiting -= 1;
                self.hold(handle, id.device, class);
                return Some(request);
            }
        }
        None
    }

    /// Gives up everything that was asked through this handle; nothing more is asked through it. Returns the requests that the device
    /// has not been given: it never will be. [`Admission::next`] is to be asked after it.
    #[must_use]
    pub fn give_up(&mut self, id: HandleId) -> Vec<T> {
        let (handle, device) = (&mut self.handles[id.handle], &mut self.devices[id.device]);
        if std::mem::replace(&mut handle.is_given_up, true) {
            return Vec::new();
        }
        for (class, held) in handle.held.iter().enumerate() {
            device.held[class] -= held;
            device.lost[class] += held;
            self.held -= held;
        }
        self.ordinary -= handle.held[Class::Ordinary as usize];
        handle.waiting = 0;
        let mut never = Vec::new();
        for waiting in &mut device.waiting {
            let (own, others) = std::mem::take(waiting).into_iter().partition(|(of, _)| *of == id.handle);
            *waiting = others;
            let own: VecDeque<(usize, T)> = own;
            never.extend(own.into_iter().map(|(_, request)| request));
        }
        self.waiting -= never.len();
        never
    }

    /// Whether nothing more is asked through this handle: also when its owner is gone, and the last request was answered.
    pub fn is_given_up(&self, id: HandleId) -> bool {
        self.handles.get(id.handle).is_none_or(|handle| handle.number != id.number || handle.is_given_up)
    }

    /// How many requests the device of this identity has not answered, through whatever handle they came, given up or not.
    pub fn owed(&self, identity: u64) -> usize {
        let device = self.by_identity.get(&identity).map(|device| &self.devices[*device]);
        device.map_or(0, |device| device.held.iter().chain(&device.lost).sum())
    }

    /// Whether the devices have no request but those that were given up.
    pub fn is_idle(&self) -> bool {
        self.held == 0
    }

    /// Whether a device may have one more request.
    fn has_room(&self, device: usize, class: Class) -> bool {
        let (held, lost) = {
            let device = &self.devices[device];
            (device.held[class as usize], device.lost[class as usize])
        };
        if active(Bug::HungDiskTakesAll) {
            return self.held < self.limits.ordinary;
        }
        match class {
            Class::Reserved => held + lost < self.limits.reserved,
            Class::Ordinary if held + lost >= self.limits.of_device() => false,
            Class::Ordinary => {
                held < self.limits.guaranteed || 3 * held < self.limits.ordinary.saturating_sub(self.ordinary)
            }
        }
    }

    fn hold(&mut self, handle: usize, device: usize, class: Class) {
        self.handles[handle].held[class as usize] += 1;
        self.devices[device].held[class as usize] += 1;
        self.held += 1;
        self.ordinary += usize::from(class == Class::Ordinary);
    }

    fn forget_unused(&mut self, id: HandleId) {
        let handle = &self.handles[id.handle];
        if handle.is_open || handle.held != [0; 2] || handle.waiting > 0 {
            return;
        }
        self.handles.remove(id.handle);
        let device = &mut self.devices[id.device];
        device.handles -= 1;
        if device.handles == 0 {
            self.by_identity.remove(&device.identity);
            self.devices.remove(id.device);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::Random;
    use std::collections::VecDeque;

    /// Asks for `count` requests, numbered from `from`, and gives those that begin.
    fn ask(
        admission: &mut Admission<usize>,
        id: HandleId,
        class: Class,
        from: usize,
        count: usize,
    ) -> Vec<usize> {
        (from..from + count).filter_map(|request| admission.ask(id, class, request)).collect()
    }

    fn next(admission: &mut Admission<usize>, id: HandleId) -> Vec<usize> {
        std::iter::from_fn(|| admission.next(id)).collect()
    }

    #[test]
    fn a_device_alone_has_a_quarter_and_its_requests_go_in_order() {
        let mut admission = Admission::new(Limits::CORE);
        let (one, other) = (admission.open(1), admission.open(1));
        assert_eq!(ask(&mut admission, one, Class::Ordinary, 0, 200), (0..128).collect::<Vec<_>>());
        assert_eq!(ask(&mut admission, other, Class::Ordinary, 200, 1), [0; 0], "it is the same device");
        for answer in 0..73 {
            admission.answered(one, Class::Ordinary);
            let expected = if answer < 72 { 128 + answer } else { 200 };
            assert_eq!(next(&mut admission, one), [expected]);
        }
        admission.answered(one, Class::Ordinary);
        assert_eq!(next(&mut admission, one), [0; 0]);
    }

    /// Devices that never answer, with all the requests that they may have, one after the other: the rest of the core's.
    #[test]
    fn whatever_hangs_others_have_their_share() {
        for hung in [1, 2, 4, 8, 100, 1000] {
            let mut admission = Admission::new(Limits::CORE);
            let mut held = 0;
            for device in 0..hung {
                let id = admission.open(device);
                held += ask(&mut admission, id, Class::Ordinary, 0, 1000).len();
                assert_eq!(ask(&mut admission, id, Class::Reserved, 0, 1000).len(), Limits::CORE.reserved);
            }
            assert!(held <= 512 + 4 * hung as usize, "{hung} hold {held}");
            let healthy = admission.open(hung);
            let begun = ask(&mut admission, healthy, Class::Ordinary, 0, 1000);
            let share = [(1, 96), (2, 72), (4, 40), (8, 13)].iter().find(|(of, _)| *of == hung);
            assert!(begun.len() >= share.map_or(4, |share| share.1), "{} beside {hung}", begun.len());
            assert_eq!(ask(&mut admission, healthy, Class::Reserved, 0, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
            for request in begun.len()..1000 {
                admission.answered(healthy, Class::Ordinary);
                assert_eq!(next(&mut admission, healthy), [request]);
            }
        }
    }

    /// The device answers in part what its owner no longer waits for: nothing is asked for the rest of it.
    #[test]
    fn a_handle_that_is_forgotten_asks_for_nothing_more() {
        let mut admission = Admission::new(Limits::CORE);
        let gone = admission.open(1);
        assert_eq!(ask(&mut admission, gone, Class::Ordinary, 0, 1), [0]);
        admission.close(gone);
        assert!(!admission.is_given_up(gone) && admission.owed(1) == 1, "its request is under way");
        admission.answered(gone, Class::Ordinary);
        assert!(admission.is_given_up(gone) && admission.owed(1) == 0);
        let other = admission.open(2);
        assert!(admission.is_given_up(gone) && !admission.is_given_up(other), "though it has its place");
    }

    #[test]
    fn what_is_given_up_is_no_longer_in_the_way_of_others() {
        for asked in [0, 3, 128, 500, 512, 600, 5000] {
            let mut admission = Admission::new(Limits::CORE);
            let (hung, same) = (admission.open(1), admission.open(1));
            let begun = ask(&mut admission, hung, Class::Ordinary, 0, asked).len();
            assert_eq!(begun, asked.min(128));
            assert_eq!(ask(&mut admission, hung, Class::Reserved, 0, 9).len(), 8);
            assert_eq!(admission.give_up(hung).len(), asked - begun + 1);
            assert_eq!(admission.give_up(hung), [0; 0], "once");
            assert!(admission.is_idle() && admission.is_given_up(hung) && !admission.is_given_up(same));
            assert_eq!(next(&mut admission, hung), [0; 0]);
            let other = admission.open(2);
            assert_eq!(ask(&mut admission, other, Class::Ordinary, 0, 200).len(), 128);
            // Until the device answers, it has them, through whichever handle they came.
            assert_eq!(ask(&mut admission, same, Class::Ordinary, 0, 128).len(), (128 - begun).min(96));
        }
    }

    /// A device that hangs, is given up and opened again and again: what it holds does not grow.
    #[test]
    fn a_device_that_is_opened_again_and_again_has_no_more() {
        let mut admission = Admission::new(Limits::CORE);
        let (mut held, mut handles) = (Vec::new(), Vec::new());
        for _ in 0..50 {
            let id = admission.open(7);
            for class in [Class::Ordinary, Class::Reserved] {
                held.extend(ask(&mut admission, id, class, 0, 100).iter().map(|_| (id, class)));
            }
            let _ = admission.give_up(id);
            admission.close(id);
            handles.push(id);
        }
        assert_eq!(held.len(), 128 + 8);
        for (id, class) in held {
            admission.answered(id, class);
            assert_eq!(admission.next(id), None);
        }
        assert!(
            admission.handles.is_empty() && admission.devices.is_empty() && admission.by_identity.is_empty()
        );
        let again = admission.open(7);
        assert_eq!(ask(&mut admission, again, Class::Ordinary, 0, 200).len(), 128);
    }

    const DEVICES: usize = 12;

    #[derive(Clone, Copy)]
    struct Request {
        id: HandleId,
        device: usize,
        class: Class,
        number: usize,
    }

    /// Devices and what they have.
    struct Model {
        admission: Admission<Request>,
        limits: Limits,
        with: Vec<VecDeque<Request>>,
        /// The number of the next request to be asked for, and of the next to begin, by class.
        asked: [[usize; 2]; DEVICES],
        begun: [[usize; 2]; DEVICES],
    }

    impl Model {
        fn begin(&mut self, request: Request) {
            let next = &mut self.begun[request.device][request.class as usize];
            assert!(request.number >= *next, "device {} is served in order", request.device);
            *next = request.number + 1;
            let with = &mut self.with[request.device];
            with.push_back(request);
            let most = [self.limits.of_device(), self.limits.reserved][request.class as usize];
            assert!(with.iter().filter(|other| other.class == request.class).count() <= most);
        }

        fn ask(&mut self, id: HandleId, device: usize, class: Class) {
            let number = self.asked[device][class as usize];
            self.asked[device][class as usize] += 1;
            if let Some(request) = self.admission.ask(id, class, Request { id, device, class, number }) {
                self.begin(request);
            }
        }

        /// The device answers one of its requests, if it has any.
        fn answer(&mut self, device: usize, random: &mut Random) -> bool {
            if self.with[device].is_empty() {
                return false;
            }
            let which = random.below(self.with[device].len() as u64) as usize;
            let request = self.with[device].remove(which).expect("it is one of them");
            self.admission.answered(request.id, request.class);
            while let Some(next) = self.admission.next(request.id) {
                self.begin(next);
            }
            true
        }
    }

    /// Random requests to devices of which some do not answer and are given up, again and again: the others get all that they
    /// are asked for, in order, and no device has more than it may.
    #[test]
    fn in_any_order_of_events_devices_that_answer_are_served_in_order() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let limits = Limits { ordinary: 64, ..Limits::CORE };
            let mut model = Model {
                admission: Admission::new(limits),
                limits,
                with: vec![VecDeque::new(); DEVICES],
                asked: [[0; 2]; DEVICES],
                begun: [[0; 2]; DEVICES],
            };
            let hangs: Vec<bool> = (0..DEVICES).map(|_| random.one_in(2)).collect();
            let mut ids: Vec<HandleId> =
                (0..DEVICES as u64).map(|device| model.admission.open(device)).collect();
            for _ in 0..2000 {
                let device = random.below(DEVICES as u64) as usize;
                match (random.below(40), hangs[device]) {
                    (0, true) => {
                        let never = model.admission.give_up(ids[device]);
                        assert!(never.iter().all(|request| request.device == device));
                        model.admission.close(ids[device]);
                        ids[device] = model.admission.open(device as u64);
                    }
                    (0..25, false) => {
                        model.answer(device, &mut random);
                    }
                    (what, _) => {
                        let class = if what % 8 == 0 { Class::Reserved } else { Class::Ordinary };
                        model.ask(ids[device], device, class);
                    }
                }
            }
            for device in (0..DEVICES).filter(|device| !hangs[*device]) {
                while model.answer(device, &mut random) {}
                assert_eq!(
                    model.begun[device], model.asked[device],
                    "seed {seed}: device {device} was starved"
                );
            }
            // At last the others answer, too, and nothing is left.
            for device in (0..DEVICES).filter(|device| hangs[*device]) {
                while model.answer(device, &mut random) {}
            }
            ids.iter().for_each(|id| model.admission.close(*id));
            assert!(
                model.admission.is_idle() && model.admission.ordinary == 0 && model.admission.waiting == 0
            );
            assert!(model.admission.handles.is_empty() && model.admission.devices.is_empty());
        }
    }
}
