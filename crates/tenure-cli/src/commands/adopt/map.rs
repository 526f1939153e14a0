//! Map files, which name the columns of a table. All faults of a file are reported at once with
//! their lines.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use tenure::table::{Identifier, LeaseTable, TableMap};
use toml::de::{DeTable, DeValue};

use crate::config::{Complaint, Place, nearest};
use crate::exit::Exit;
use crate::problem::{Problem, Stop};

/// The sections of a map; all other fields are at its top level.
const PARTS: [&str; 2] = ["columns", "status"];

pub(super) fn read(table: &Identifier, file: &Path) -> Result<LeaseTable, Stop> {
    let name = file.display().to_string();
    let text = fs::read_to_string(file).map_err(|cause| {
        Problem::new(Exit::Usage, format!("cannot read the map {name}"))
            .cause(cause)
            .hint("check the name and the permissions of the file")
    })?;
    Ok(parse(table, &name, &text)?)
}

fn parse(table: &Identifier, name: &str, text: &str) -> Result<LeaseTable, Vec<Complaint>> {
    let mut walk = MapWalk {
        name,
        text,
        values: TableMap::new(),
        places: BTreeMap::new(),
        complaints: Vec::new(),
    };
    match DeTable::parse(text) {
        Ok(whole) => walk.table("", whole.get_ref()),
        Err(error) => {
            let span = error.span().unwrap_or_default();
            let message = error.message().replace('\n', ", ");
            walk.complain(&span, format!("invalid TOML: {message}"), None);
        }
    }
    let described = LeaseTable::described(table.clone(), &walk.values);
    for fault in described.as_ref().err().into_iter().flatten() {
        let span = walk.places.get(&fault.field).cloned().unwrap_or_default();
        let hint = fault.hint.clone().or_else(|| suggestion(&fault.field));
        walk.complain(&span, fault.problem.clone(), hint);
    }
    match described {
        Ok(table) if walk.complaints.is_empty() => Ok(table),
        _ => {
            walk.complaints.sort();
            Err(walk.complaints)
        }
    }
}

/// A walk through one file that collects values and complaints.
struct MapWalk<'a> {
    name: &'a str,
    text: &'a str,
    values: TableMap,
    places: BTreeMap<String, Range<usize>>,
    complaints: Vec<Complaint>,
}

impl MapWalk<'_> {
    fn complain(&mut self, span: &Range<usize>, text: String, hint: Option<String>) {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let place = Place::File {
            path: self.name.to_owned(),
            line: before.matches('\n').count() + 1,
        };
        self.complaints.push(Complaint::new(place, text).hint(hint));
    }

    fn table(&mut self, part: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let key: &str = name.get_ref();
            let field = match part {
                "" => key.to_owned(),
                part => format!("{part}.{key}"),
            };
            let value = value.get_ref();
            if let DeValue::Table(inner) = value
                && part.is_empty()
                && PARTS.contains(&key)
            {
                self.table(key, inner);
            } else if let Some(texts) = texts(&field, value) {
                self.add(field, texts, name.span());
            } else {
                self.wrong_type(&field, &name.span());
            }
        }
    }

    fn add(&mut self, field: String, texts: Vec<String>, span: Range<usize>) {
        self.places.insert(field.clone(), span);
        self.values.insert(field, texts);
    }

    fn wrong_type(&mut self, field: &str, span: &Range<usize>) {
        let expected = if field == "order" {
            "a list such as [\"priority desc\", \"created_at\"]"
        } else if PARTS.contains(&field) {
            "a section: its name in brackets on a line of its own"
        } else {
            "text"
        };
        let hint = suggestion(field);
        self.complain(
            span,
            format!("{field} has a value of the wrong type; expected {expected}"),
            hint,
        );
    }
}

/// The values of a field: one text, or for `order` a list of texts.
fn texts(field: &str, value: &DeValue<'_>) -> Option<Vec<String>> {
    let text = |value: &DeValue<'_>| {
        if let DeValue::String(text) = value {
            Some(text.clone().into_owned())
        } else {
            None
        }
    };
    if let DeValue::Array(values) = value
        && field == "order"
    {
        return values.iter().map(|value| text(value.get_ref())).collect();
    }
    text(value).map(|text| vec![text])
}

/// The hint for an unknown field that resembles a known one.
fn suggestion(field: &str) -> Option<String> {
    let fields = LeaseTable::map_fields();
    if fields.iter().any(|known| known == field) {
        return None;
    }
    let name = nearest(field, fields.iter().map(String::as_str));
    name.map(|name| format!("did you mean {name}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<LeaseTable, Vec<Complaint>> {
        parse(&Identifier::new("mails").unwrap(), "map.toml", text)
    }

    #[test]
    fn a_map_is_read() {
        let table = parsed(
            "key = \"mail_no\"\norder = [\"urgency desc\", \"mail_no\"]\n\n\
             [columns]\nuntil = \"busy_until\"\n\n\
             [status]\ncolumn = \"state\"\npending = \"new\"\n",
        )
        .unwrap();
        assert_eq!(table.key.as_str(), "mail_no");
        assert_eq!(table.order.len(), 2);
        assert_eq!(table.columns.until.as_str(), "busy_until");
        assert_eq!(table.states.word(tenure::State::Pending), Some("new"));
    }

    #[test]
    fn all_faults_are_reported_with_line_and_hint() {
        let complaints = parsed(
            "key = 7\norder = [\"urgency down\"]\n\n\
             [columns]\nuntill = \"x\"\nholder = \"id\"\ntoken = \"a b\"\n\n\
             [status]\ndead = \"a'b\"\n",
        )
        .unwrap_err();
        let lines = complaints.into_iter().map(|complaint| {
            let problem = Problem::from(complaint);
            format!("{} | {}", problem.message, problem.hint.unwrap_or_default())
        });
        insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn invalid_toml_is_reported() {
        let complaints = parsed("key = \n").unwrap_err();
        assert_eq!(complaints.len(), 1);
    }
}
