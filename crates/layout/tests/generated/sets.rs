//! Writes the enumerations in C, C++, Fortran and Python, so that they are the same in all languages.

use crossdock_layout::Status;
use crossdock_layout::queue::{Pattern, Side, Waiting};
use crossdock_layout::region::Order;
use crossdock_layout::series::{Detect, FullPolicy, Pages, PublisherState, ValueKind};
use crossdock_layout::set::{ClosedSet, Set};
use crossdock_layout::wire::{ItemLevel, ItemState, OnDeath, OpenMode};

use super::{keep, remark, replace, upper};

/// A closed set, and how it appears in the other languages.
struct Shown {
    set: Set,
    /// The enum's name in C, and the prefix of its enumerators' names.
    c: (&'static str, &'static str),
    /// What to subtract from a number in Rust to get the number in C: the number in Rust of the value that has the
    /// number 0 in C.
    first: u32,
    /// An enumerator that only the other languages have, for "the caller gave no value". The fields are its name in C,
    /// its number and its meaning.
    open: Option<(&'static str, u32, &'static str)>,
    /// The file, the enum's name and its underlying type in C++.
    cpp: Option<(&'static str, &'static str, &'static str)>,
    fortran: Option<&'static str>,
    /// The name of the type alias in the Python stub.
    python: Option<&'static str>,
}

const C: &str = "crates/capi/include/crossdock.h";
const F: &str = "bindings/fortran/crossdock_c.f90";
const F_SERIES: &str = "bindings/fortran/crossdock_series_c.f90";
const F_ITEMS: &str = "bindings/fortran/crossdock_items.F90";
const STUB: &str = "bindings/python/python/crossdock/__init__.pyi";

fn shown() -> Vec<Shown> {
    fn set<T: ClosedSet>(c: &'static str, prefix: &'static str) -> Shown {
        Shown { set: T::SET, c: (c, prefix), first: 0, open: None, cpp: None, fortran: None, python: None }
    }
    let any = ("CROSSDOCK_ANY_PATTERN", 4, "for an existing port, the pattern that it has; for a new port, one-to-one");
    vec![
        Shown {
            cpp: Some(("error.hpp", "status", "int")),
            fortran: Some(F),
            ..set::<Status>("crossdock_status", "CROSSDOCK_")
        },
        Shown {
            first: 1,
            cpp: Some(("detail/object.hpp", "mode", "int")),
            fortran: Some(F),
            python: Some("_Mode"),
            ..set::<OpenMode>("crossdock_mode", "CROSSDOCK_")
        },
        Shown {
            cpp: Some(("ndarray.hpp", "order", "std::uint32_t")),
            fortran: Some(F),
            python: Some("_Order"),
            ..set::<Order>("crossdock_order", "CROSSDOCK_ORDER_")
        },
        Shown {
            cpp: Some(("transport.hpp", "port_end", "int")),
            fortran: Some(F),
            python: Some("_End"),
            ..set::<Side>("crossdock_end", "CROSSDOCK_")
        },
        Shown {
            open: Some(any),
            cpp: Some(("transport.hpp", "pattern", "int")),
            fortran: Some(F),
            python: Some("_Pattern"),
            ..set::<Pattern>("crossdock_pattern", "CROSSDOCK_")
        },
        set::<Waiting>("crossdock_waiting", "CROSSDOCK_WAIT_"),
        Shown { first: 1, fortran: Some(F_SERIES), ..set::<ValueKind>("crossdock_value_kind", "CROSSDOCK_VALUE_") },
        Shown {
            fortran: Some(F_SERIES),
            python: Some("_Full"),
            ..set::<FullPolicy>("crossdock_full", "CROSSDOCK_FULL_")
        },
        Shown {
            fortran: Some(F_SERIES),
            python: Some("_Detect"),
            ..set::<Detect>("crossdock_detect", "CROSSDOCK_DETECT_")
        },
        Shown {
            fortran: Some(F_SERIES),
            python: Some("_Pages"),
            ..set::<Pages>("crossdock_pages", "CROSSDOCK_PAGES_")
        },
        Shown {
            fortran: Some(F_SERIES),
            python: Some("_SeriesState"),
            ..set::<PublisherState>("crossdock_series_state", "CROSSDOCK_SERIES_")
        },
        Shown {
            open: Some(("CROSSDOCK_LEVEL_DEFAULT", 0, "verified")),
            cpp: Some(("item.hpp", "level", "int")),
            fortran: Some(F_ITEMS),
            python: Some("_Level"),
            ..set::<ItemLevel>("crossdock_item_level", "CROSSDOCK_")
        },
        Shown {
            open: Some(("CROSSDOCK_POLICY_DEFAULT", 0, "keep")),
            cpp: Some(("item.hpp", "on_death", "int")),
            fortran: Some(F_ITEMS),
            python: Some("_Policy"),
            ..set::<OnDeath>("crossdock_item_policy", "CROSSDOCK_")
        },
        Shown {
            fortran: Some(F_ITEMS),
            python: Some("_ItemState"),
            ..set::<ItemState>("crossdock_item_state", "CROSSDOCK_ITEM_")
        },
    ]
}

impl Shown {
    /// For each value of the set: its name in C, its number and its remark. They are in the order of the numbers.
    fn members(&self) -> Vec<(String, u32, String)> {
        let name = |name| format!("{}{}", self.c.1, upper(name));
        let own = self.set.members.iter().map(|m| (name(m.name), m.number - self.first, remark(m.doc)));
        let open = self.open.iter().map(|(name, number, about)| ((*name).to_owned(), *number, (*about).to_owned()));
        let mut members: Vec<_> = own.chain(open).collect();
        members.sort_by_key(|member| member.1);
        members
    }

    fn c(&self, text: &str) -> String {
        let members = self.members();
        let entries = |(n, (name, number, about)): (usize, &(String, u32, String))| {
            let comma = if n + 1 < members.len() { "," } else { "" };
            (format!("    {name} = {number}{comma}"), about.clone())
        };
        let body = aligned(members.iter().enumerate().map(entries).collect(), "/* ", " */", " ");
        let name = self.c.0;
        replace(text, &format!("typedef enum {name} {{"), "}", &format!("typedef enum {name} {{\n{body}}}"))
    }

    fn cpp(&self, text: &str, name: &str, underlying: &str) -> String {
        let word = |c: &str| match c {
            "CROSSDOCK_RETURN" => "return_to_creator".to_owned(),
            "CROSSDOCK_ANY_PATTERN" => "any".to_owned(),
            c => c.strip_prefix(self.c.1).unwrap_or(c).to_lowercase(),
        };
        let members = self.members();
        // The options in C++ have default values, so C++ does not need the number by which C says "not given".
        let members = members.iter().filter(|(c, _, _)| !c.ends_with("_DEFAULT"));
        let entries = members.map(|(c, _, about)| (format!("  {} = {c},", word(c)), about.clone())).collect();
        let body = aligned(entries, "///< ", "", "  ");
        let begin = format!("enum class {name} : {underlying} {{");
        replace(text, &begin, "}", &format!("{begin}\n{body}}}"))
    }

    fn fortran(&self, text: &str) -> String {
        let members = self.members();
        let body: String = members.iter().map(|(name, n, _)| format!("    enumerator :: {name} = {n}\n")).collect();
        let first = text.find(&format!("    enumerator :: {} =", members[0].0)).expect("the set's first enumerator");
        let end = first + text[first..].find("  end enum").expect("an end of the enumeration");
        format!("{}{body}{}", &text[..first], &text[end..])
    }

    fn python(&self, text: &str, alias: &str) -> String {
        let words: Vec<_> = self.set.members.iter().map(|m| format!("\"{}\"", m.word)).collect();
        let begin = format!("\n{alias} = Literal[");
        replace(text, &begin, "]", &format!("{begin}{}]", words.join(", ")))
    }
}

/// Puts the remarks of all lines into one column.
fn aligned(lines: Vec<(String, String)>, open: &str, close: &str, gap: &str) -> String {
    let width = lines.iter().map(|(line, _)| line.len()).max().unwrap_or(0);
    let line = |(line, about): &(String, String)| {
        let long = width + gap.len() + open.len() + about.len() + close.len() > 120;
        assert!(!long, "too long for a line, make its first sentence shorter: {about}");
        format!("{line:width$}{gap}{open}{about}{close}\n")
    };
    lines.iter().map(line).collect()
}

#[test]
fn enums_of_the_header_are_the_declared_sets() {
    keep(C, |text| shown().iter().fold(text.to_owned(), |text, set| set.c(&text)));
}

#[test]
fn enums_of_cpp_are_the_declared_sets() {
    for set in shown() {
        if let Some((file, name, underlying)) = set.cpp {
            keep(&format!("bindings/cpp/include/crossdock/{file}"), |text| set.cpp(text, name, underlying));
        }
    }
}

#[test]
fn enumerators_of_fortran_are_the_declared_sets() {
    for set in shown() {
        if let Some(file) = set.fortran {
            keep(file, |text| set.fortran(text));
        }
    }
}

#[test]
fn words_of_the_python_stub_are_the_declared_sets() {
    keep(STUB, |text| {
        let named = shown().into_iter().filter_map(|set| set.python.map(|alias| (set, alias)));
        named.fold(text.to_owned(), |text, (set, alias)| set.python(&text, alias))
    });
}

#[test]
fn python_has_an_exception_for_each_status() {
    let text = std::fs::read_to_string(super::path("bindings/python/python/crossdock/_errors.py")).unwrap();
    for status in Status::SET.members.iter().skip(1) {
        let class = if status.name == "System" { "Kernel" } else { status.name };
        let from = text.find(&format!("class {class}Error(Error")).unwrap_or_else(|| panic!("no exception {class}"));
        let number = text[from..].lines().find_map(|line| line.strip_prefix("    status = "));
        assert_eq!(number, Some(status.number.to_string().as_str()), "{class}Error");
    }
}
