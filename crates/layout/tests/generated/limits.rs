//! The limits that the C header and the Fortran modules also have.

use crossdock_layout::{name, queue, region, series, type_name};

const HEADER: &str = "crates/capi/include/crossdock.h";

#[test]
fn limits_of_the_header_and_of_fortran_are_those_of_the_library() {
    let limits = [
        ("CROSSDOCK_NAME_MAX", name::MAX_NAME),
        ("CROSSDOCK_TYPE_NAME_MAX", type_name::MAX_TYPE_NAME),
        ("CROSSDOCK_INLINE_MAX", queue::INLINE_MAX),
        ("CROSSDOCK_RANK_MAX", region::MAX_RANK),
        ("CROSSDOCK_TEXT_MAX", series::MAX_TEXT),
        ("CROSSDOCK_VERSIONS_MAX", series::PINS),
    ];
    super::keep(HEADER, |text| {
        limits.iter().fold(text.to_owned(), |t, (n, v)| number(&t, &format!("#define {n} "), *v))
    });
    super::keep("bindings/fortran/crossdock_c.f90", |text| {
        limits[..4].iter().fold(text.to_owned(), |t, (n, v)| number(&t, &format!("{n} = "), *v))
    });
}

fn number(text: &str, before: &str, value: usize) -> String {
    let from = text.find(before).unwrap_or_else(|| panic!("there is no '{before}'")) + before.len();
    let digits = text[from..].bytes().take_while(u8::is_ascii_digit).count();
    format!("{}{value}{}", &text[..from], &text[from + digits..])
}
