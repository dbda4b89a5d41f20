//! A Linux server with two paths to one volume: open-iscsi and dm-multipath in a guest, as administrators set them up.
//!
//! [`image`] makes the guest from Debian's packages, [`machine`] runs it, [`link`] lies between the guest and each portal
//! and can be cut, [`target`] is what serves the volume, [`steps`] is what is done with it, [`chap`] one of them. Nothing of it touches the
//! machine: the guest has its own kernel, its network ends at this process.

pub mod chap;
pub mod image;
pub mod link;
pub mod machine;
pub mod steps;
pub mod target;

use crate::host::{Directory, Outcome};
use std::path::Path;
use steps::{Extent, Steps};
use target::Target;

/// XFS wants 300 MiB at least.
const SIZE: u64 = 512 << 20;

pub fn short(binary: &Path, directory: &Directory) -> Outcome<String> {
    run(binary, directory, Extent::Short)
}

pub fn long(binary: &Path, directory: &Directory) -> Outcome<String> {
    run(binary, directory, Extent::Long)
}

fn run(binary: &Path, directory: &Directory, extent: Extent) -> Outcome<String> {
    let image = image::image()?;
    let target = Target::create(binary, directory, SIZE)?;
    let mut steps = Steps::start(&image, target, directory)?;
    match steps.all(extent) {
        Ok(figures) => steps.stop().map(|()| figures),
        Err(failure) => Err(steps.failed(&failure)),
    }
}
