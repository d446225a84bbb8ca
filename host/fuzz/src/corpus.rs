//! Inputs that are kept: those that the host once got wrong, and one of each kind that it refuses. What comes of each is
//! written down beside them.

use std::{collections::BTreeMap, fs, path::PathBuf};

use crate::Host;

const EXPECTED: &str = "expected.tsv";

/// Puts the corpus through both passes, and compares.
pub fn run(host: &Host, update: bool) -> Result<bool, Box<dyn std::error::Error>> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"));
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == EXPECTED {
            continue;
        }
        let input = fs::read(entry.path())?;
        let outcome = |load| host.put_through(&input, load).unwrap_or_else(|wrong| format!("WRONG: {wrong}"));
        found.insert(name, (outcome(false), outcome(true)));
    }
    let text: String = found.iter().map(|(name, (check, load))| format!("{name}\t{check}\t{load}\n")).collect();
    let file = folder.join(EXPECTED);
    if update {
        fs::write(&file, &text)?;
    }
    let expected = fs::read_to_string(&file)?;
    let (expected, text): (Vec<_>, Vec<_>) = (expected.lines().collect(), text.lines().collect());
    for line in text.iter().filter(|line| !expected.contains(line)) {
        eprintln!("The corpus expects otherwise (file, check, load): {line}");
    }
    for line in expected.iter().filter(|line| !text.contains(line)) {
        eprintln!("It expects: {line}");
    }
    println!("The {} inputs of the corpus were put through.", text.len());
    Ok(expected == text && !text.iter().any(|line| line.contains("WRONG")))
}
