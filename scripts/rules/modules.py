"""A module with children is `name/mod.rs`; there is no `name.rs` beside a folder of its children. (The root of a target,
such as `lib.rs` or `main.rs`, is no such module.)"""


def check(top, folders, problems):
    """`folders` are the folders of all packages. Their tests, benches and programs count as well."""
    for folder in folders:
        for file in sorted(folder.rglob("*.rs")):
            children = file.with_suffix("")
            if "target" not in file.relative_to(folder).parts and any(children.glob("*.rs")):
                path = file.relative_to(top)
                problems.append(f"{path}: a module with children is {children.relative_to(top)}/mod.rs")
