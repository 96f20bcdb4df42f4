//! The four faces of a table.

use super::{Align, Cell, Column, Table};
use crate::text::{clean, width};
use maud::{Markup, html};

impl Table {
    /// Aligned columns for the terminal, the title above, a rule under the header.
    pub fn to_text(&self) -> String {
        let columns = self.all_columns();
        let header: Vec<String> = columns.iter().map(|column| clean(&column.name)).collect();
        let body: Vec<Vec<String>> = self.written_rows(&columns);
        let widths: Vec<usize> = (0..columns.len())
            .map(|place| {
                let cells = body.iter().map(|row| width(&row[place]));
                cells.chain([width(&header[place])]).max().unwrap_or(0)
            })
            .collect();
        let rule: Vec<String> = widths.iter().map(|&width| "─".repeat(width)).collect();

        let mut out = String::new();
        if !self.title.is_empty() {
            out += &format!("{}\n\n", clean(&self.title));
        }
        for row in [&header, &rule].into_iter().chain(&body) {
            let cells: Vec<String> = (row.iter().zip(&widths).zip(&columns))
                .map(|((cell, &width), column)| padded(cell, width, column.align))
                .collect();
            out += cells.join("  ").trim_end();
            out.push('\n');
        }
        out
    }

    /// A Markdown table, its title in bold above, its hints below.
    pub fn to_markdown(&self) -> String {
        let columns = self.all_columns();
        let mut out = String::new();
        if !self.title.is_empty() {
            out += &format!("**{}**\n\n", markdown_text(&self.title));
        }
        out += &markdown_row(columns.iter().map(|column| markdown_text(&column.name)));
        out += &markdown_row(columns.iter().map(|column| match column.align {
            Align::Left => ":---".into(),
            Align::Right => "---:".into(),
        }));
        for row in &self.rows {
            out += &markdown_row(columns.iter().enumerate().map(|(place, column)| {
                let Some(cell) = row.get(place) else {
                    return String::new();
                };
                let written = markdown_text(&cell.written(column.format));
                match self.is_best(place, column, cell) {
                    true => format!("**{written}**"),
                    false => written,
                }
            }));
        }
        for (name, hint) in hints(&columns) {
            out += &format!("\n{}: {}\n", markdown_text(name), markdown_text(hint));
        }
        out
    }

    /// Comma-separated values for machines: numbers in full precision, without units.
    ///
    /// A column with a spread becomes two: the mean, and `NAME deviation`.
    pub fn to_csv(&self) -> String {
        let columns = self.all_columns();
        let spread: Vec<bool> = (0..columns.len())
            .map(|place| {
                let mut cells = self.rows.iter().filter_map(|row| row.get(place));
                cells.any(|cell| matches!(cell, Cell::Spread { .. }))
            })
            .collect();
        let mut header = Vec::new();
        for (column, &spread) in columns.iter().zip(&spread) {
            header.push(csv_field(&column.name));
            if spread {
                header.push(csv_field(&format!("{} deviation", column.name)));
            }
        }
        let mut out = header.join(",") + "\n";
        for row in &self.rows {
            let mut fields = Vec::new();
            for (place, &spread) in spread.iter().enumerate() {
                let (value, deviation) = match row.get(place) {
                    None => (String::new(), String::new()),
                    Some(Cell::Text(text)) => (csv_field(text), String::new()),
                    Some(Cell::Number(value) | Cell::Shown { value, .. }) => {
                        (csv_number(*value), String::new())
                    }
                    Some(Cell::Spread { mean, deviation }) => (csv_number(*mean), csv_number(*deviation)),
                };
                fields.push(value);
                if spread {
                    fields.push(deviation);
                }
            }
            out += &(fields.join(",") + "\n");
        }
        out
    }

    /// The table as part of a page: its headers are buttons that sort it.
    pub(crate) fn to_markup(&self) -> Markup {
        let columns = self.all_columns();
        html! {
            div.table {
                div.scroll {
                    table.sortable {
                        @if !self.title.is_empty() { caption { (clean(&self.title)) } }
                        thead { tr {
                            @for column in &columns {
                                th scope="col" class=(side(column)) aria-sort="none" {
                                    button type="button" title=[column.hint.as_deref().map(clean)] {
                                        (clean(&column.name))
                                    }
                                }
                            }
                        } }
                        tbody {
                            @for row in &self.rows { tr {
                                @for (place, column) in columns.iter().enumerate() {
                                    (self.html_cell(place, column, row.get(place)))
                                }
                            } }
                        }
                    }
                }
                @if hints(&columns).next().is_some() {
                    dl.hints {
                        @for (name, hint) in hints(&columns) {
                            div { dt { (clean(name)) } dd { (clean(hint)) } }
                        }
                    }
                }
            }
        }
    }

    fn html_cell(&self, place: usize, column: &Column, cell: Option<&Cell>) -> Markup {
        let Some(cell) = cell else {
            return html! { td {} };
        };
        let best = self.is_best(place, column, cell);
        html! {
            td class=(side(column)) data-value=[cell.value()] {
                @if best { strong { (cell.written(column.format)) } }
                @else { (cell.written(column.format)) }
            }
        }
    }

    fn written_rows(&self, columns: &[Column]) -> Vec<Vec<String>> {
        let written = |row: &Vec<Cell>| {
            let cells = columns.iter().enumerate().map(|(place, column)| {
                row.get(place).map_or_else(String::new, |cell| cell.written(column.format))
            });
            cells.collect()
        };
        self.rows.iter().map(written).collect()
    }

    fn is_best(&self, place: usize, column: &Column, cell: &Cell) -> bool {
        cell.value().is_some() && cell.value() == self.best(place, column)
    }
}

fn hints(columns: &[Column]) -> impl Iterator<Item = (&str, &str)> {
    let hinted = |column: &'_ Column| column.hint.is_some();
    (columns.iter().filter(move |column| hinted(column)))
        .map(|column| (column.name.as_str(), column.hint.as_deref().unwrap_or("")))
}

fn side(column: &Column) -> &'static str {
    match column.align {
        Align::Left => "left",
        Align::Right => "right",
    }
}

fn padded(cell: &str, to: usize, align: Align) -> String {
    let blank = " ".repeat(to.saturating_sub(width(cell)));
    match align {
        Align::Left => format!("{cell}{blank}"),
        Align::Right => format!("{blank}{cell}"),
    }
}

fn markdown_row(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

fn markdown_text(text: &str) -> String {
    let mut out = String::new();
    for c in clean(text).chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '|' | '\\' | '*' | '_' | '`' | '[' | ']' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

/// Quoted as RFC 4180 asks, where needed.
fn csv_field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into(),
    }
}

fn csv_number(value: f64) -> String {
    match value.is_finite() {
        true => value.to_string(),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    fn sample() -> Table {
        Table::new("Table 2")
            .column(Column::text("Method"))
            .column(Column::number("P@1", Format::Fixed(1)).highest_is_best())
            .column(Column::number("Epochs to 90%", Format::Count).lowest_is_best().hint("of full softmax"))
            .row([
                "Full softmax".into(),
                Cell::Spread { mean: 37.5, deviation: 0.21 },
                Cell::Shown { value: 6.0, text: "E6".into() },
            ])
            .row(["NCE".into(), 31.8.into(), "Fail".into()])
            .row(["日本, \"x\"".into()])
    }

    #[test]
    fn terminal_columns_stand_in_line() {
        let expected = "\
Table 2

Method               P@1  Epochs to 90%
────────────  ──────────  ─────────────
Full softmax  37.5 ± 0.2             E6
NCE                 31.8           Fail
日本, \"x\"
";
        assert_eq!(sample().to_text(), expected);
    }

    #[test]
    fn markdown_marks_the_best_and_explains() {
        let expected = "\
**Table 2**

| Method | P@1 | Epochs to 90% |
| :--- | ---: | ---: |
| Full softmax | **37.5 ± 0.2** | E6 |
| NCE | 31.8 | Fail |
| 日本, \"x\" |  |  |

Epochs to 90%: of full softmax
";
        assert_eq!(sample().to_markdown(), expected);
    }

    #[test]
    fn csv_keeps_full_precision_and_quotes() {
        let expected = "\
Method,P@1,P@1 deviation,Epochs to 90%
Full softmax,37.5,0.21,6
NCE,31.8,,Fail
\"日本, \"\"x\"\"\",,,
";
        assert_eq!(sample().to_csv(), expected);
    }

    #[test]
    fn a_row_too_long_loses_nothing() {
        let table = Table::new("").row(["a".into(), 1.5.into()]);
        assert_eq!(table.to_csv(), ",\na,1.5\n");
        assert_eq!(table.to_text().lines().count(), 3);
    }

    #[test]
    fn hostile_text_is_escaped_everywhere() {
        let hostile = "<script>alert(1)</script>|*x*\x1b[2J\n\"&'";
        let table = Table::new(hostile).column(Column::text(hostile).hint(hostile)).row([hostile.into()]);
        let html = table.to_markup().into_string();
        assert!(!html.contains("<script"));
        assert_eq!(html.matches("&lt;script&gt;").count(), 6);
        assert!(!table.to_text().contains('\x1b'));
        let markdown = table.to_markdown();
        assert!(markdown.contains(r"&lt;script>alert(1)&lt;/script>\|\*x\*"));
        assert!(!markdown.contains('\x1b'));
    }

    #[test]
    fn one_value_alone_is_not_called_the_best() {
        let table =
            Table::new("").column(Column::number("x", Format::Count).highest_is_best()).row([1.0.into()]);
        assert!(!table.to_markdown().contains("**"));
    }
}
