//! What volumes and snapshots hold, told plainly: a map for each.
//!
//! It knows nothing of trees, births or checkpoints. A snapshot is a copy.

use forebay_base::Random;
use forebay_pool::{Compression, VolumeFormat};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Who wrote what: by block, the number of the write.
pub type Content = Rc<BTreeMap<u64, u32>>;

#[derive(Clone, PartialEq, Debug)]
pub struct Volume {
    pub content: Content,
    /// In blocks.
    pub size: u64,
    /// The snapshot that it grew from.
    pub parent: Option<u32>,
    /// Whoever it shares ancestors with has the same.
    pub family: u32,
    /// Whether space is reserved for it.
    pub is_thick: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    pub volume: String,
    pub name: String,
    pub content: Content,
    pub size: u64,
    pub parent: Option<u32>,
    pub family: u32,
    /// The first snapshot that it is a copy of, itself if it is none.
    pub origin: u32,
    pub held: bool,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Model {
    pub volumes: BTreeMap<String, Volume>,
    pub snapshots: BTreeMap<u32, Snapshot>,
    next: u32,
}

/// One thing that somebody does.
#[derive(Clone, PartialEq, Debug)]
pub enum Op {
    Create {
        volume: String,
        size: u64,
        format: VolumeFormat,
    },
    /// What is written from now on is stored so.
    Compress {
        volume: String,
        compression: Compression,
    },
    Write {
        volume: String,
        first: u64,
        count: u64,
        number: u32,
    },
    Discard {
        volume: String,
        first: u64,
        count: u64,
    },
    Resize {
        volume: String,
        size: u64,
    },
    Snapshot {
        volumes: Vec<String>,
        name: String,
    },
    Hold {
        volume: String,
        name: String,
        held: bool,
    },
    DeleteSnapshot {
        volume: String,
        name: String,
    },
    Rollback {
        volume: String,
        name: String,
    },
    Clone {
        volume: String,
        name: String,
        new: String,
    },
    Promote {
        volume: String,
    },
    Rename {
        volume: String,
        new: String,
    },
    RenameSnapshot {
        volume: String,
        name: String,
        new: String,
    },
    DeleteVolume {
        volume: String,
        with_snapshots: bool,
    },
    /// A snapshot is sent, whole or as what changed since another one, and received as `into`.
    Travel {
        volume: String,
        name: String,
        base: Option<(String, String)>,
        into: String,
    },
    Checkpoint,
}

impl Model {
    pub fn find(&self, volume: &str, name: &str) -> Option<u32> {
        let is_it = |snapshot: &Snapshot| snapshot.volume == volume && snapshot.name == name;
        self.snapshots.iter().find(|(_, snapshot)| is_it(snapshot)).map(|(id, _)| *id)
    }

    /// Volumes, and owners of snapshots, that grew from a snapshot: each once for each.
    fn children(&self, id: u32) -> Vec<&str> {
        let volumes = self.volumes.iter().filter(|(_, volume)| volume.parent == Some(id));
        let snapshots = self.snapshots.values().filter(|snapshot| snapshot.parent == Some(id));
        volumes.map(|(name, _)| &**name).chain(snapshots.map(|snapshot| &*snapshot.volume)).collect()
    }

    fn forget(&mut self, id: u32) {
        let parent = self.snapshots.remove(&id).expect("it is there").parent;
        let parents = self.volumes.values_mut().map(|volume| &mut volume.parent);
        let parents = parents.chain(self.snapshots.values_mut().map(|snapshot| &mut snapshot.parent));
        parents.filter(|known| **known == Some(id)).for_each(|known| *known = parent);
    }

    /// Takes a snapshot of a volume that holds `content`.
    pub fn snapshot(&mut self, volume: &str, name: &str, content: Content) {
        let id = self.number();
        let of = self.volumes.get_mut(volume).expect("it is there");
        let (size, family, parent) = (of.size, of.family, of.parent.replace(id));
        let (volume, name) = (volume.to_string(), name.to_string());
        let taken = Snapshot { volume, name, content, size, parent, family, origin: id, held: false };
        self.snapshots.insert(id, taken);
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    pub fn are_kin(one: &Snapshot, other: &Snapshot) -> bool {
        one.family == other.family
    }

    /// The snapshots that are copies of one.
    pub fn copies(&self, origin: u32) -> impl Iterator<Item = (u32, &Snapshot)> {
        self.snapshots.iter().filter(move |(_, known)| known.origin == origin).map(|(id, known)| (*id, known))
    }

    /// The copy of a snapshot that a volume has.
    pub fn copy_in(&self, volume: &str, origin: u32) -> Option<u32> {
        self.copies(origin).find(|(_, known)| known.volume == volume).map(|(id, _)| id)
    }

    /// A snapshot is received as a volume; the base is one of its family.
    fn travel(&mut self, sent: u32, base: Option<u32>, into: &str) -> bool {
        let sent = self.snapshots[&sent].clone();
        let base = base.map(|base| self.snapshots[&base].origin);
        let (parent, is_thick) = match (self.volumes.get(into), base) {
            (None, None) => (None, false),
            (Some(_), None) => return false,
            (None, Some(base)) => (self.copies(base).map(|(id, _)| id).next(), false),
            (Some(volume), Some(base)) => {
                let has_it = self.copy_in(into, sent.origin).is_some();
                let parent = self.copy_in(into, base);
                if has_it || self.find(into, &sent.name).is_some() || parent.is_none() || volume.is_thick {
                    return false;
                }
                (parent, false)
            }
        };
        let (id, fresh) = (self.number(), self.number());
        let family = parent.map_or(fresh, |parent| self.snapshots[&parent].family);
        let arrived =
            Volume { content: sent.content.clone(), size: sent.size, parent: Some(id), family, is_thick };
        self.volumes.insert(into.into(), arrived);
        self.snapshots.insert(id, Snapshot { volume: into.into(), parent, family, held: false, ..sent });
        true
    }

    /// Does it; false when it is refused, and nothing has changed.
    pub fn apply(&mut self, op: &Op) -> bool {
        match op {
            Op::Checkpoint | Op::Compress { .. } => true,
            Op::Create { volume, size, format } => {
                let (content, family) = (Content::default(), self.number());
                let is_thick = *format != VolumeFormat::Thin;
                let fresh = Volume { content, size: *size, parent: None, family, is_thick };
                self.volumes.insert(volume.clone(), fresh).is_none()
            }
            Op::Travel { volume, name, base, into } => {
                let find = |volume: &str, name: &str| self.find(volume, name).expect("it is there");
                let base = base.as_ref().map(|(volume, name)| find(volume, name));
                self.travel(find(volume, name), base, into)
            }
            Op::Write { volume, first, count, number } => {
                let volume = self.volumes.get_mut(volume).expect("it is there");
                Rc::make_mut(&mut volume.content)
                    .extend((*first..first + count).map(|block| (block, *number)));
                true
            }
            Op::Discard { volume, first, count } => {
                let volume = self.volumes.get_mut(volume).expect("it is there");
                Rc::make_mut(&mut volume.content).retain(|block, _| !(*first..first + count).contains(block));
                true
            }
            Op::Resize { volume, size } => {
                self.volumes.get_mut(volume).expect("it is there").size = *size;
                true
            }
            Op::Snapshot { volumes, name } => {
                if volumes.iter().any(|volume| self.find(volume, name).is_some()) {
                    return false;
                }
                for volume in volumes {
                    let content = self.volumes[volume].content.clone();
                    self.snapshot(volume, name, content);
                }
                true
            }
            Op::Hold { volume, name, held } => {
                let id = self.find(volume, name).expect("it is there");
                self.snapshots.get_mut(&id).expect("found").held = *held;
                true
            }
            Op::DeleteSnapshot { volume, name } => {
                let id = self.find(volume, name).expect("it is there");
                let children = self.children(id);
                let is_free = children.len() <= 1 && children.iter().all(|child| child == volume);
                if is_free && !self.snapshots[&id].held {
                    self.forget(id);
                    return true;
                }
                false
            }
            Op::Rollback { volume, name } => {
                let id = self.find(volume, name).expect("it is there");
                let Snapshot { content, size, family, .. } = self.snapshots[&id].clone();
                let is_thick = self.volumes[volume].is_thick;
                let back = Volume { content, size, parent: Some(id), family, is_thick };
                self.volumes.insert(volume.clone(), back);
                true
            }
            Op::Clone { volume, name, new } => {
                let id = self.find(volume, name).expect("it is there");
                let Snapshot { content, size, family, .. } = self.snapshots[&id].clone();
                if self.volumes.contains_key(new) {
                    return false;
                }
                let cloned = Volume { content, size, parent: Some(id), family, is_thick: false };
                self.volumes.insert(new.clone(), cloned);
                true
            }
            Op::Promote { volume } => self.promote(volume),
            Op::Rename { volume, new } => {
                if volume != new && self.volumes.contains_key(new) {
                    return false;
                }
                let renamed = self.volumes.remove(volume).expect("it is there");
                self.volumes.insert(new.clone(), renamed);
                let own = self.snapshots.values_mut().filter(|snapshot| snapshot.volume == *volume);
                own.for_each(|snapshot| snapshot.volume.clone_from(new));
                true
            }
            Op::RenameSnapshot { volume, name, new } => {
                let id = self.find(volume, name).expect("it is there");
                if name != new && self.find(volume, new).is_some() {
                    return false;
                }
                self.snapshots.get_mut(&id).expect("found").name.clone_from(new);
                true
            }
            Op::DeleteVolume { volume, with_snapshots } => {
                let own: Vec<u32> = self.of(volume).map(|(id, _)| id).collect();
                let is_held = own.iter().any(|id| self.snapshots[id].held);
                let foreign = own.iter().any(|id| self.children(*id).iter().any(|child| child != volume));
                if (!with_snapshots && !own.is_empty()) || is_held || foreign {
                    return false;
                }
                self.volumes.remove(volume);
                // The newest first: each then has nobody who grew from it.
                own.into_iter().rev().for_each(|id| self.forget(id));
                true
            }
        }
    }

    /// Whether volumes hold the same in both.
    pub fn looks_like(&self, other: &Model) -> bool {
        let held = |model: &Model| -> Vec<_> {
            model
                .volumes
                .iter()
                .map(|(name, volume)| (name.clone(), volume.content.clone(), volume.size))
                .collect()
        };
        held(self) == held(other)
    }

    /// The snapshots listed under a volume.
    pub fn of<'a>(&'a self, volume: &'a str) -> impl Iterator<Item = (u32, &'a Snapshot)> {
        self.snapshots.iter().filter(move |(_, known)| known.volume == volume).map(|(id, known)| (*id, known))
    }

    /// The snapshot of another volume that a volume grew from.
    pub fn origin(&self, volume: &str) -> Option<u32> {
        let mut at = self.volumes[volume].parent?;
        while self.snapshots[&at].volume == volume {
            at = self.snapshots[&at].parent?;
        }
        Some(at)
    }

    fn promote(&mut self, volume: &str) -> bool {
        let Some(origin) = self.origin(volume) else { return false };
        let owner = self.snapshots[&origin].volume.clone();
        let (mut moved, mut next) = (Vec::new(), Some(origin));
        while let Some(id) = next.filter(|id| self.snapshots[id].volume == owner) {
            moved.push(id);
            next = self.snapshots[&id].parent;
        }
        if moved.iter().any(|id| self.find(volume, &self.snapshots[id].name).is_some()) {
            return false;
        }
        for id in moved {
            self.snapshots.get_mut(&id).expect("found").volume = volume.to_string();
        }
        true
    }
}

/// A block that begins with `word`: all of it is that, or, of one write in three, noise that cannot be made smaller.
pub fn fill(bytes: &mut [u8], word: u64) {
    bytes.chunks_mut(8).for_each(|place| place.copy_from_slice(&word.to_le_bytes()));
    if is_noise(word) {
        Random::new(word).fill(&mut bytes[8..]);
    }
}

fn is_noise(word: u64) -> bool {
    word != 0 && (word as u32).is_multiple_of(3)
}

/// Whether a block that begins with `word` is as [`fill`] made it.
pub fn is_filled(bytes: &[u8], word: u64) -> bool {
    if !is_noise(word) {
        return bytes[8..] == bytes[..bytes.len() - 8];
    }
    let mut right = vec![0; bytes.len()];
    fill(&mut right, word);
    bytes == right
}
