//! `forebay disk model`: a device measured, and a model of it.

use forebay_cli::{DiskModel, Exit, Failure};
use forebay_live::{DeviceOptions, Refused, model_device};

pub fn model(options: DiskModel, json: bool) -> Result<Exit, Failure> {
    let DiskModel { path, write, yes, seconds } = options;
    let refused = |refused: Refused| {
        let (exit, detail, remedy) = match refused {
            Refused::NotEmpty => (
                Exit::Unsafe,
                "it may hold data, which writing would destroy".to_string(),
                "Give an empty file (truncate -s 1G PATH), omit --write, or add --yes if the data is not needed",
            ),
            Refused::OnlyHoles => (
                Exit::Usage,
                "the file was never written, so reads of it would not reach the device".to_string(),
                "Add --write, which fills its first 512 MiB and also measures writes",
            ),
            Refused::TooSmall(bytes) => (
                Exit::Usage,
                format!("{bytes} bytes are too small"),
                "Give a device or file of 16 MiB or more",
            ),
            Refused::Failed(error) => {
                (Exit::Failed, error, "Give a block device or file that no pool uses and that you may open")
            }
        };
        Failure::new(exit, detail, remedy).object(&path)
    };
    let report = model_device(&DeviceOptions { path: path.clone(), write, may_lose: yes, seconds })
        .map_err(refused)?;
    match json {
        true => println!("{}", serde_json::json!(report)),
        false => print!("{}", report.text()),
    }
    Ok(Exit::Ok)
}
