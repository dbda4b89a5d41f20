//! Slots: of SCSI enclosures (SES, the kernel's `ses` driver) and of the machine's PCI bus.
//!
//! Only attributes that the driver has in memory are read. `fault`, `locate`, `status`, `active` and `power_status` are left alone: each of them
//! is a command to the enclosure, which may hang.

use crate::disk::Slot;
use crate::tree::Tree;
use std::collections::HashMap;

/// Slots by what sits in them.
#[derive(Default)]
pub(crate) struct Slots {
    by_hctl: HashMap<String, Slot>,
    /// By PCI address without the function: `0000:3b:00`.
    by_pci: HashMap<String, Slot>,
}

impl Slots {
    pub fn read(tree: Tree) -> Slots {
        let mut slots = Slots::default();
        for enclosure in tree.names("sys/class/enclosure") {
            slots.add_enclosure(tree, &format!("sys/class/enclosure/{enclosure}"), &enclosure);
        }
        for slot in tree.names("sys/bus/pci/slots") {
            if let Some(address) = tree.text(&format!("sys/bus/pci/slots/{slot}/address")) {
                let number = slot.parse().ok();
                let at =
                    Slot { enclosure: None, model: None, number, label: crate::tree::clean(slot.as_bytes()) };
                slots.by_pci.insert(address, at);
            }
        }
        slots
    }

    fn add_enclosure(&mut self, tree: Tree, directory: &str, name: &str) {
        // Both controllers of an enclosure show the same logical identifier, so that a slot has one name on both paths.
        let id = tree.text(&format!("{directory}/id")).unwrap_or_else(|| crate::tree::clean(name.as_bytes()));
        let part = |what: &str| tree.text(&format!("{directory}/device/{what}"));
        let model: Vec<String> = [part("vendor"), part("model")].into_iter().flatten().collect();
        let model = (!model.is_empty()).then(|| model.join(" "));
        for component in tree.names(directory) {
            let Some(hctl) = tree.target_name(&format!("{directory}/{component}/device")) else { continue };
            if !is_hctl(&hctl) {
                continue;
            }
            let number =
                tree.number(&format!("{directory}/{component}/slot")).and_then(|n| u32::try_from(n).ok());
            let label = crate::tree::clean(component.as_bytes());
            self.by_hctl
                .insert(hctl, Slot { enclosure: Some(id.clone()), model: model.clone(), number, label });
        }
    }

    /// The slot of a SCSI device.
    pub fn of_scsi(&self, hctl: &str) -> Option<Slot> {
        self.by_hctl.get(hctl).cloned()
    }

    /// The slot of a PCI device, by its address with the function: `0000:3b:00.0`.
    pub fn of_pci(&self, address: &str) -> Option<Slot> {
        let (device, _) = address.rsplit_once('.')?;
        self.by_pci.get(device).cloned()
    }
}

/// Whether a name is host, channel, target and LUN.
pub(crate) fn is_hctl(name: &str) -> bool {
    let parts: Vec<&str> = name.split(':').collect();
    parts.len() == 4
        && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}
