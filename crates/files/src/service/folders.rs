//! The watched folders of the producers, which the service finds by the number of the watch and by the path.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The watched folders. Their paths are relative to `stage`.
#[derive(Debug, Default)]
pub(super) struct WatchedFolders {
    paths: BTreeMap<i32, PathBuf>,
    numbers: BTreeMap<PathBuf, i32>,
}

impl WatchedFolders {
    /// Notes that the watch `number` is now the watch of the folder `rest`.
    pub fn insert(&mut self, number: i32, rest: &Path) {
        if let Some(former) = self.paths.insert(number, rest.to_owned()).filter(|former| former != rest) {
            self.numbers.remove(&former);
        }
        if let Some(former) = self.numbers.insert(rest.to_owned(), number).filter(|former| *former != number) {
            self.paths.remove(&former);
        }
    }

    /// Gives the path of the folder with this watch.
    pub fn path(&self, number: i32) -> Option<&Path> {
        self.paths.get(&number).map(PathBuf::as_path)
    }

    /// Tells whether this folder is watched.
    pub fn has(&self, rest: &Path) -> bool {
        self.numbers.contains_key(rest)
    }

    /// Forgets a folder and all folders below it.
    pub fn remove(&mut self, rest: &Path) {
        for (_, number) in take_below(&mut self.numbers, rest) {
            self.paths.remove(&number);
        }
    }

    /// Forgets all folders.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Removes the entries of a name and of all names below it from a map, and returns the removed entries.
pub(super) fn take_below<T>(map: &mut BTreeMap<PathBuf, T>, rest: &Path) -> Vec<(PathBuf, T)> {
    let below = map.range(rest.to_owned()..).map(|(name, _)| name).take_while(|name| name.starts_with(rest));
    let below: Vec<PathBuf> = below.cloned().collect();
    below.into_iter().filter_map(|name| map.remove_entry(&name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_those_below_it_and_a_watch_has_one_path() {
        let mut folders = WatchedFolders::default();
        for (number, rest) in ["", "d", "d/a", "d/a/b", "d.x", "dd"].into_iter().enumerate() {
            folders.insert(i32::try_from(number).unwrap(), Path::new(rest));
        }
        folders.remove(Path::new("d"));
        assert!(["", "d.x", "dd"].into_iter().all(|rest| folders.has(Path::new(rest))));
        assert!(["d", "d/a", "d/a/b"].into_iter().all(|rest| !folders.has(Path::new(rest))));
        assert_eq!((folders.path(4), folders.path(2)), (Some(Path::new("d.x")), None));
        // A folder was renamed and is watched under its new name. The kernel gives its watch the same number as before.
        folders.insert(4, Path::new("e"));
        assert!(folders.has(Path::new("e")) && !folders.has(Path::new("d.x")));
        // A folder was removed, and a new folder has its name.
        folders.insert(9, Path::new("e"));
        assert_eq!((folders.path(9), folders.path(4)), (Some(Path::new("e")), None));
    }
}
