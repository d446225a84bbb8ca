//! A core module made a component, and what a component says about itself.

use std::{fs, path::Path};

use wit_component::{ComponentEncoder, DecodedWasm, WitPrinter};
use wit_parser::WorldKey;

use crate::error::{Error, file};

/// The component of a core module that holds its own interface types.
pub(crate) fn encode(module: &Path) -> Result<Vec<u8>, Error> {
    let core = fs::read(module).map_err(file(module, "read"))?;
    ComponentEncoder::default()
        .validate(true)
        .module(&core)
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| Error::Component { path: module.to_owned(), message: format!("{error:#}") })
}

/// What a component imports and exports, and the WIT text of all of it.
pub(crate) struct World {
    pub(crate) imports: Vec<String>,
    pub(crate) text: String,
}

/// Reads the world of a component. `path` is for the error alone.
pub(crate) fn world(component: &[u8], path: &Path) -> Result<World, Error> {
    let failed = |message: String| Error::Component { path: path.to_owned(), message };
    let decoded = wit_component::decode(component).map_err(|error| failed(format!("{error:#}")))?;
    let DecodedWasm::Component(resolve, world) = &decoded else {
        return Err(failed("it is a WIT package, not a component".to_owned()));
    };
    let name = |key: &WorldKey| resolve.name_world_key(key);
    let imports = resolve.worlds.get(*world).map(|world| world.imports.keys().map(name).collect()).unwrap_or_default();
    let packages: Vec<_> = resolve.packages.iter().map(|(id, _)| id).filter(|id| *id != decoded.package()).collect();
    let mut printer = WitPrinter::default();
    printer.print(resolve, decoded.package(), &packages).map_err(|error| failed(format!("{error:#}")))?;
    Ok(World { imports, text: printer.output.to_string() })
}
