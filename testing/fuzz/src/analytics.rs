//! Expressions that people, browsers and worksheets send: what is understood is written as it was, and means the same again.

use forebay_analytics::{CHARS_MAX, Expression};

pub fn expression(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(expression) = Expression::parse(text) else { return };
    let written = expression.to_string();
    assert!(text.chars().count() <= CHARS_MAX, "{text} is longer than any");
    let again =
        Expression::parse(&written).unwrap_or_else(|error| panic!("{text} became {written}: {error}"));
    assert_eq!(again, expression, "{text} became {written}");
}
