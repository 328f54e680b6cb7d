//! Turns the paths that programs pass into absolute paths, without asking the file system about the parts of these
//! paths.

/// Puts `path` behind `folder` unless `path` is absolute. Removes `.`, `..` and doubled slashes from the text. So a
/// `..` behind a symbolic link may lead to another folder than the file system would find. This difference is no
/// problem for managed directories, because they are mounts and not links.
#[must_use]
pub fn absolute(folder: &[u8], path: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(folder.len() + path.len() + 1);
    if path.first() != Some(&b'/') {
        joined.extend_from_slice(folder);
        joined.push(b'/');
    }
    joined.extend_from_slice(path);
    normalise(&joined)
}

/// Removes `.`, `..`, doubled slashes and a slash at the end from an absolute path.
#[must_use]
pub fn normalise(path: &[u8]) -> Vec<u8> {
    let mut clean: Vec<u8> = Vec::with_capacity(path.len());
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => clean.truncate(clean.iter().rposition(|b| *b == b'/').unwrap_or(0)),
            part => {
                clean.push(b'/');
                clean.extend_from_slice(part);
            }
        }
    }
    if clean.is_empty() {
        clean.push(b'/');
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_absolute_by_their_words() {
        for (folder, path, wanted) in [
            ("/data", "frames/a", "/data/frames/a"),
            ("/data", "/x//y/./z/", "/x/y/z"),
            ("/data/frames", "../other/a", "/data/other/a"),
            ("/", "../../a", "/a"),
            ("/", ".", "/"),
        ] {
            assert_eq!(absolute(folder.as_bytes(), path.as_bytes()), wanted.as_bytes(), "{folder} {path}");
        }
    }
}
