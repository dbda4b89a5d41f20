//! `filter` and `sort` of lists: one mechanism for all of them, over what an item looks like to its reader.
//!
//! A list does not say what can be asked of it: the schema of its items in the OpenAPI document does, so a field that is added there can be filtered
//! by at once, and one that there is not is refused with those that there are. Items become JSON only where a request has conditions or an order.
//!
//! Pages stay right under an order: a cursor has the values that the last item was sorted by, and its key, which is unique. An item that changes
//! between two pages may be seen twice or not at all, as it would be where it had been renamed; none of the others is.

use crate::request::Ask;
use forebay_api::{Code, Page, Problem};
use serde::Serialize;
use serde_json::Value;
use std::cmp::Ordering;
use std::sync::OnceLock;
use utoipa::ToSchema;

/// A person writes three, and each is a look at each item.
const CONDITIONS_MAX: usize = 16;
const ORDERS_MAX: usize = 4;
const TEXT_BYTES_MAX: usize = 2000;
/// What of a text counts in an order, so that a cursor stays short.
const SORTED_CHARS_MAX: usize = 100;
/// Of objects in each other: the deepest has five.
const DEPTH_MAX: usize = 8;
/// Those of two characters first: they begin as the others.
const OPERATORS: [(&str, Operator); 7] = [
    ("!=", Operator::IsNot),
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("=", Operator::Is),
    ("<", Operator::Below),
    (">", Operator::Above),
    ("~", Operator::Has),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Is,
    IsNot,
    Below,
    AtMost,
    Above,
    AtLeast,
    /// The text has this in it, whatever the case.
    Has,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Number,
    Truth,
    Text,
}

/// Something that an item has, as its schema says.
#[derive(PartialEq, Eq, Debug)]
struct Field {
    /// With dots where objects are in each other.
    name: String,
    kind: Kind,
    /// Below a list: there may be several, and any of them counts.
    many: bool,
}

struct Condition {
    field: Field,
    operator: Operator,
    value: String,
}

struct Order {
    field: Field,
    descending: bool,
}

/// What a request asks of a list.
struct Selection {
    conditions: Vec<Condition>,
    orders: Vec<Order>,
}

impl Ask {
    /// One page of those `items` that are asked for, in the order that is asked for and else in that of their keys, which are unique.
    pub fn page<T: Serialize + ToSchema>(
        &self,
        items: Vec<T>,
        key: impl Fn(&T) -> String,
    ) -> Result<Page<T>, Problem> {
        let selection = self.selection::<T>()?;
        let mut items = selection.chosen(items);
        items.sort_by_cached_key(&key);
        if selection.orders.is_empty() {
            if let Some(cursor) = &self.cursor {
                items.retain(|item| key(item) > *cursor);
            }
            let next_cursor = self.cut(&mut items).then(|| items.last().map(key)).flatten();
            return Ok(Page { items, next_cursor });
        }
        let sorted_by = self.sort.clone().unwrap_or_default();
        let mut placed: Vec<(Place, T)> = items
            .into_iter()
            .map(|item| (Place(sorted_by.clone(), selection.values(&item), key(&item)), item))
            .collect();
        placed.sort_by(|(a, _), (b, _)| selection.compare(a, b));
        if let Some(cursor) = &self.cursor {
            let last = Place::parse(cursor, &sorted_by, selection.orders.len())?;
            placed.retain(|(place, _)| selection.compare(place, &last) == Ordering::Greater);
        }
        let more = self.cut(&mut placed);
        let next_cursor = placed.last().filter(|_| more).map(|(place, _)| place.cursor());
        Ok(Page { items: placed.into_iter().map(|(_, item)| item).collect(), next_cursor })
    }

    /// Of numbered `items`, the oldest first, those that are asked for: the newest, or with `after` the oldest. An order is one of the page.
    pub fn numbered<T: Serialize + ToSchema>(&self, items: Vec<T>) -> Result<Page<T>, Problem> {
        let selection = self.selection::<T>()?;
        let mut items = selection.chosen(items);
        if self.after.is_none() {
            items.drain(..items.len().saturating_sub(self.limit()));
        }
        self.cut(&mut items);
        items.sort_by_cached_key(|item| Sorted(selection.values(item), &selection.orders));
        Ok(Page { items, next_cursor: None })
    }

    /// Whether there are more than are asked for.
    fn cut<T>(&self, items: &mut Vec<T>) -> bool {
        let more = items.len() > self.limit();
        items.truncate(self.limit());
        more
    }

    fn selection<T: ToSchema>(&self) -> Result<Selection, Problem> {
        let fields = || fields(&T::name());
        let parts = |text: &Option<String>, parameter, most| match text {
            Some(text) => split(text, parameter, most),
            None => Ok(Vec::new()),
        };
        let conditions = parts(&self.filter, "filter", CONDITIONS_MAX)?;
        let orders = parts(&self.sort, "sort", ORDERS_MAX)?;
        Ok(Selection {
            conditions: conditions.iter().map(|text| condition(text, fields())).collect::<Result<_, _>>()?,
            orders: orders.iter().map(|text| order(text, fields())).collect::<Result<_, _>>()?,
        })
    }
}

/// Where an item stands in an order: how that is written, what the item is sorted by, and its key.
#[derive(serde::Serialize, serde::Deserialize)]
struct Place(String, Vec<Value>, String);

impl Place {
    fn cursor(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }
    fn parse(cursor: &str, sorted_by: &str, values: usize) -> Result<Place, Problem> {
        let place = serde_json::from_str(cursor).ok();
        place.filter(|Place(by, of, _)| by == sorted_by && of.len() == values).ok_or_else(|| {
            Problem::new(Code::Invalid, "the cursor does not belong to this sort order")
                .field("cursor")
                .remedy("Give the next_cursor of the previous page, with the same sort.")
        })
    }
}

/// Values that are in the order that is asked for.
struct Sorted<'a>(Vec<Value>, &'a [Order]);

impl PartialEq for Sorted<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Sorted<'_> {}

impl PartialOrd for Sorted<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Sorted<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0, self.1)
    }
}

impl Selection {
    fn chosen<T: Serialize>(&self, mut items: Vec<T>) -> Vec<T> {
        if !self.conditions.is_empty() {
            items.retain(|item| {
                let item = json(item);
                self.conditions.iter().all(|condition| condition.holds(&item))
            });
        }
        items
    }

    /// What an item is sorted by; null where it has nothing of the kind.
    fn values<T: Serialize>(&self, item: &T) -> Vec<Value> {
        if self.orders.is_empty() {
            return Vec::new();
        }
        let item = json(item);
        let value = |order: &Order| match found(&item, &order.field.name).first() {
            Some(Value::String(text)) => text.chars().take(SORTED_CHARS_MAX).collect::<String>().into(),
            Some(value) => (*value).clone(),
            None => Value::Null,
        };
        self.orders.iter().map(value).collect()
    }

    fn compare(&self, a: &Place, b: &Place) -> Ordering {
        compare(&a.1, &b.1, &self.orders).then_with(|| a.2.cmp(&b.2))
    }
}

/// What has nothing to be sorted by comes last, in either direction.
fn compare(a: &[Value], b: &[Value], orders: &[Order]) -> Ordering {
    let each = a.iter().zip(b).zip(orders).map(|((a, b), order)| match (a, b) {
        (Value::Null, Value::Null) => Ordering::Equal,
        (Value::Null, _) => Ordering::Greater,
        (_, Value::Null) => Ordering::Less,
        _ if order.descending => by_value(b, a),
        _ => by_value(a, b),
    });
    each.fold(Ordering::Equal, Ordering::then)
}

/// Of one kind, but in a forged cursor.
fn by_value(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a.as_f64().unwrap_or(f64::MAX).total_cmp(&b.as_f64().unwrap_or(f64::MAX))
        }
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        _ => Ordering::Equal,
    }
}

fn json<T: Serialize>(item: &T) -> Value {
    serde_json::to_value(item).expect("the API's objects are plain data")
}

/// All that stands under such a name: several where a list is on the way, nothing where something is absent.
fn found<'a>(item: &'a Value, name: &str) -> Vec<&'a Value> {
    let flat = |value: &'a Value| match value {
        Value::Array(items) => items.iter().collect(),
        Value::Null => Vec::new(),
        value => vec![value],
    };
    let step = |values: Vec<&'a Value>, part: &str| {
        values.into_iter().filter_map(|value| value.get(part)).flat_map(flat).collect()
    };
    name.split('.').fold(vec![item], step)
}

impl Condition {
    fn holds(&self, item: &Value) -> bool {
        let values = found(item, &self.field.name);
        let is = |value: &&Value| self.compared(value) == Some(Ordering::Equal);
        let any = |wanted: fn(Ordering) -> bool| {
            values.iter().any(|value| self.compared(value).is_some_and(wanted))
        };
        match self.operator {
            Operator::Is => values.iter().any(is),
            Operator::IsNot => !values.iter().any(is),
            Operator::Below => any(Ordering::is_lt),
            Operator::AtMost => any(Ordering::is_le),
            Operator::Above => any(Ordering::is_gt),
            Operator::AtLeast => any(Ordering::is_ge),
            Operator::Has => {
                let wanted = self.value.to_lowercase();
                values
                    .iter()
                    .filter_map(|value| value.as_str())
                    .any(|text| text.to_lowercase().contains(&wanted))
            }
        }
    }

    /// How what an item has compares with what is asked for.
    fn compared(&self, value: &Value) -> Option<Ordering> {
        match value {
            Value::Number(number) => number.as_f64()?.partial_cmp(&self.value.parse().ok()?),
            Value::Bool(truth) => Some(truth.cmp(&self.value.parse().ok()?)),
            Value::String(text) => Some(text.as_str().cmp(&self.value)),
            _ => None,
        }
    }
}

fn wrong(parameter: &str, detail: String) -> Problem {
    let remedy = match parameter {
        "filter" => {
            "Write a field, an operator (= != < <= > >=, or ~ for contains) and a value. Separate several conditions by commas. Put a value with \
             commas in double quotes."
        }
        _ => "Write fields separated by commas; - before a field sorts it in descending order.",
    };
    Problem::new(Code::Invalid, detail).field(parameter).remedy(remedy)
}

/// At commas that do not stand in double quotes.
fn split(text: &str, parameter: &str, most: usize) -> Result<Vec<String>, Problem> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(wrong(parameter, format!("it is longer than {TEXT_BYTES_MAX} bytes")));
    }
    let mut in_quotes = false;
    let parts = text.split(|c| {
        in_quotes ^= c == '"';
        c == ',' && !in_quotes
    });
    let parts: Vec<String> = parts.map(|part| part.trim().to_string()).collect();
    if in_quotes {
        return Err(wrong(parameter, "a double quote is not closed".into()));
    }
    match parts.len() > most {
        true => Err(wrong(parameter, format!("there are more than {most} parts"))),
        false => Ok(parts),
    }
}

fn condition(text: &str, fields: Vec<Field>) -> Result<Condition, Problem> {
    let at = |(mark, operator): (&'static str, Operator)| Some((text.find(mark)?, mark, operator));
    // Of several that begin at one place, the longest: it comes first in the list.
    let first = OPERATORS.into_iter().filter_map(at).min_by_key(|(at, _, _)| *at);
    let Some((at, mark, operator)) = first else {
        return Err(wrong("filter", format!("{:?} is not a condition", shown(text))));
    };
    let field = field("filter", text[..at].trim(), fields)?;
    let value = text[at + mark.len()..].trim();
    let value = match value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) {
        Some(value) => value,
        None => value,
    };
    let name = &field.name;
    match field.kind {
        Kind::Number if !value.parse::<f64>().is_ok_and(f64::is_finite) => {
            Err(wrong("filter", format!("{name} is a number, and {:?} is not", shown(value))))
        }
        Kind::Truth if value.parse::<bool>().is_err() => {
            Err(wrong("filter", format!("{name} is true or false, and {:?} is neither", shown(value))))
        }
        Kind::Number | Kind::Truth if operator == Operator::Has => {
            Err(wrong("filter", format!("{name} is not a text, so ~ cannot be used")))
        }
        _ => Ok(Condition { field, operator, value: value.to_string() }),
    }
}

fn order(text: &str, fields: Vec<Field>) -> Result<Order, Problem> {
    let descending = text.starts_with('-');
    let fields = fields.into_iter().filter(|field| !field.many).collect();
    Ok(Order { field: field("sort", text.trim_start_matches('-'), fields)?, descending })
}

fn field(parameter: &str, name: &str, fields: Vec<Field>) -> Result<Field, Problem> {
    let names: Vec<String> = fields.iter().map(|field| field.name.clone()).collect();
    fields.into_iter().find(|field| field.name == name).ok_or_else(|| {
        Problem::new(Code::Invalid, format!("there is no field {:?} here", shown(name)))
            .field(parameter)
            .remedy(format!("The fields are: {}.", names.join(", ")))
    })
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

/// What items with this schema have, in the order of their names.
fn fields(schema: &str) -> Vec<Field> {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    let document = DOCUMENT.get_or_init(|| {
        serde_json::from_str(&forebay_api::document()).expect("the document is JSON that we wrote")
    });
    let mut fields = Vec::new();
    let item = Field { name: String::new(), kind: Kind::Text, many: false };
    walk(document, &document["components"]["schemas"][schema], item, 0, &mut fields);
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    fields.dedup_by(|a, b| a.name == b.name);
    fields
}

/// Adds what there is below a schema. Maps have the names of things for fields, and are left out.
fn walk(document: &Value, schema: &Value, at: Field, depth: usize, fields: &mut Vec<Field>) {
    if depth > DEPTH_MAX {
        return;
    }
    let mut below = |schema: &Value, name: String, many: bool, depth| {
        walk(document, schema, Field { name, kind: at.kind, many }, depth, fields);
    };
    if let Some(target) = schema["$ref"].as_str() {
        let schema =
            document.pointer(target.trim_start_matches('#')).expect("the document's references resolve");
        return below(schema, at.name, at.many, depth);
    }
    if let Some(properties) = schema["properties"].as_object() {
        for (name, schema) in properties {
            let name = if at.name.is_empty() { name.clone() } else { format!("{}.{name}", at.name) };
            below(schema, name, at.many, depth + 1);
        }
        return;
    }
    if let Some(either) = schema["oneOf"].as_array().or(schema["allOf"].as_array()) {
        return either.iter().for_each(|schema| below(schema, at.name.clone(), at.many, depth));
    }
    if schema.get("items").is_some() {
        return below(&schema["items"], at.name, true, depth);
    }
    let kinds = schema["type"].as_array().map_or(std::slice::from_ref(&schema["type"]), Vec::as_slice);
    for kind in kinds.iter().filter_map(Value::as_str) {
        let kind = match kind {
            "integer" | "number" => Kind::Number,
            "boolean" => Kind::Truth,
            "string" => Kind::Text,
            _ => continue,
        };
        fields.push(Field { name: at.name.clone(), kind, many: at.many });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::{Access, Event, Operation, ReplyBody, Severity, Token};

    fn token(name: &str, ends: u64, role: Access) -> Token {
        Token {
            id: format!("id of {name}"),
            name: name.into(),
            role,
            created_unix_ms: 5,
            expires_unix_ms: ends,
        }
    }

    fn tokens() -> Vec<Token> {
        let role = |n: usize| [Access::Viewer, Access::Operator, Access::Admin][n % 3];
        // Many with one end: an order has to go on within them.
        (0..40).map(|n| token(&format!("t{n:02}"), (n as u64 * 7) % 5, role(n))).collect()
    }

    fn ask(filter: &str, sort: &str) -> Ask {
        let given = |text: &str| Some(text.to_string()).filter(|text| !text.is_empty());
        Ask { filter: given(filter), sort: given(sort), ..Ask::default() }
    }

    fn names(ask: &Ask) -> Vec<String> {
        let page = ask.page(tokens(), |token| token.name.clone()).unwrap();
        page.items.into_iter().map(|token| token.name).collect()
    }

    fn refused(filter: &str, sort: &str) -> Problem {
        ask(filter, sort).page(tokens(), |token| token.name.clone()).unwrap_err()
    }

    #[test]
    fn conditions_choose() {
        let count = |filter| names(&ask(filter, "")).len();
        assert_eq!(count("role=operator"), 13);
        assert_eq!(count("role!=operator"), 27);
        assert_eq!(count("role=operator,expires_unix_ms<2"), 4);
        assert_eq!(count("expires_unix_ms>=3"), 16);
        assert_eq!(count("expires_unix_ms<=0, role = viewer"), 3);
        assert_eq!(count("name~T0"), 10);
        assert_eq!(count("name>t37"), 2);
        assert_eq!(names(&ask(r#"id="id of t07""#, "")), ["t07"]);
        assert_eq!(count(r#"id~",""#), 0);
        assert_eq!(count("role=admin,role=viewer"), 0);
    }

    #[test]
    fn pages_under_an_order_have_each_once() {
        for sort in
            ["expires_unix_ms", "-expires_unix_ms", "role,-expires_unix_ms", "-name", "created_unix_ms"]
        {
            let all = names(&ask("", sort));
            let mut ask = ask("", sort);
            ask.limit = Some(7);
            let mut seen = Vec::new();
            loop {
                let page = ask.page(tokens(), |token| token.name.clone()).unwrap();
                assert!(page.items.len() <= 7);
                seen.extend(page.items.into_iter().map(|token| token.name));
                match page.next_cursor {
                    Some(cursor) => ask.cursor = Some(cursor),
                    None => break,
                }
            }
            assert_eq!(seen, all, "{sort}");
            let distinct: std::collections::HashSet<&String> = seen.iter().collect();
            assert_eq!((seen.len(), distinct.len()), (40, 40), "{sort}");
        }
        let by_end: Vec<u64> = ask("", "-expires_unix_ms")
            .page(tokens(), |token| token.name.clone())
            .unwrap()
            .items
            .iter()
            .map(|token| token.expires_unix_ms)
            .collect();
        assert!(by_end.is_sorted_by(|a, b| a >= b) && by_end[0] == 4);
    }

    #[test]
    fn what_is_not_there_is_refused_with_what_is() {
        for (filter, sort, field, words) in [
            ("expires=1", "", "filter", "expires_unix_ms"),
            ("", "rolle", "sort", "role"),
            ("", "-", "sort", "role"),
            ("role", "", "filter", "a field"),
            ("", "name,name,name,name,name", "sort", "commas"),
            ("expires_unix_ms=soon", "", "filter", "a field"),
            ("expires_unix_ms=NaN", "", "filter", "a field"),
            ("expires_unix_ms~1", "", "filter", "a field"),
            (r#"name="a"#, "", "filter", "double quotes"),
            (",", "", "filter", "a field"),
        ] {
            let problem = refused(filter, sort);
            assert_eq!(
                (problem.code, problem.field.as_deref()),
                (Code::Invalid, Some(field)),
                "{filter} {sort}"
            );
            assert!(problem.remedy.as_ref().unwrap().contains(words), "{problem:?}");
        }
        refused(&"a".repeat(3000), "");
        for cursor in ["t03", "[]", r#"["role",["viewer"],"t03"]"#, r#"["name",[],"t03"]"#] {
            let ask = Ask { cursor: Some(cursor.into()), ..ask("", "name") };
            let problem = ask.page(tokens(), |token| token.name.clone()).unwrap_err();
            assert_eq!(problem.field.as_deref(), Some("cursor"), "{cursor}");
        }
    }

    #[test]
    fn what_is_absent_is_last_and_is_not_anything() {
        let item = serde_json::json!({"a": {"b": [{"c": 1}, {"c": 5}, {}]}, "d": null});
        let numbers: Vec<u64> = found(&item, "a.b.c").iter().filter_map(|value| value.as_u64()).collect();
        assert_eq!(numbers, [1, 5]);
        assert!(
            found(&item, "d").is_empty() && found(&item, "d.e").is_empty() && found(&item, "x").is_empty()
        );
        let condition = |operator, value: &str| {
            let field = Field { name: "a.b.c".into(), kind: Kind::Number, many: true };
            Condition { field, operator, value: value.into() }.holds(&item)
        };
        assert!(
            condition(Operator::Is, "5")
                && !condition(Operator::IsNot, "5")
                && condition(Operator::IsNot, "2")
        );
        for descending in [false, true] {
            let orders =
                [Order { field: Field { name: "d".into(), kind: Kind::Number, many: false }, descending }];
            assert_eq!(compare(&[Value::Null], &[7.into()], &orders), Ordering::Greater);
        }
    }

    #[test]
    fn every_list_has_fields_and_those_of_lists_are_not_sorted_by() {
        for operation in Operation::ALL {
            if let ReplyBody::Page(schema) = operation.reply() {
                assert!(fields(schema).len() >= 3, "{schema}");
            }
        }
        let of = |schema: &str, name: &str| fields(schema).into_iter().find(|field| field.name == name);
        assert_eq!(of("Pool", "status.state").unwrap().kind, Kind::Text);
        assert_eq!(of("Pool", "status.scrub.lost").unwrap().kind, Kind::Number);
        assert!(of("Pool", "spec.disks").unwrap().many && of("Pool", "conditions.status").unwrap().many);
        assert!(order("spec.disks", fields("Pool")).is_err());
    }

    #[test]
    fn numbered_ones_are_the_newest_or_those_that_follow() {
        let event = |sequence: u64| Event {
            sequence,
            at_unix_ms: 0,
            severity: if sequence.is_multiple_of(2) { Severity::Info } else { Severity::Error },
            code: "a.b".into(),
            object: format!("{}", 100 - sequence),
            message: String::new(),
        };
        let numbers = |ask: &Ask, from: u64| -> Vec<u64> {
            let page = ask.numbered((from..50).map(event).collect()).unwrap();
            page.items.iter().map(|event| event.sequence).collect()
        };
        let mut ask = ask("severity=error", "");
        ask.limit = Some(3);
        assert_eq!(numbers(&ask, 0), [45, 47, 49]);
        ask.after = Some(9);
        assert_eq!(numbers(&ask, 10), [11, 13, 15]);
        ask.sort = Some("-sequence".into());
        assert_eq!(numbers(&ask, 10), [15, 13, 11]);
    }
}
