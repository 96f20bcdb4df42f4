//! A table that is filled once and printed for four readers: terminal, Markdown, CSV and browser.

mod render;

use crate::Format;

/// On which side a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text begins at the left edge.
    Left,
    /// Numbers end at the right edge, so that their digits stand in line.
    Right,
}

/// What the best value of a column is, if one is to be marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Best {
    Highest,
    Lowest,
}

/// A column: its name, how its cells are written and where they stand.
#[derive(Clone, Debug)]
pub struct Column {
    name: String,
    align: Align,
    format: Format,
    hint: Option<String>,
    best: Option<Best>,
}

impl Column {
    /// A column of text, aligned left.
    pub fn text(name: impl Into<String>) -> Self {
        Self { name: name.into(), align: Align::Left, format: Format::default(), hint: None, best: None }
    }

    /// A column of numbers, aligned right and written in one format.
    pub fn number(name: impl Into<String>, format: Format) -> Self {
        Self { align: Align::Right, format, ..Self::text(name) }
    }

    /// Stands the cells on the given side.
    pub fn align(mut self, align: Align) -> Self {
        self.align = align;
        self
    }

    /// Explains the column in a note under the table (page and Markdown) and on its header (page).
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the highest value of the column in bold (page and Markdown).
    pub fn highest_is_best(mut self) -> Self {
        self.best = Some(Best::Highest);
        self
    }

    /// Sets the lowest value of the column in bold (page and Markdown).
    pub fn lowest_is_best(mut self) -> Self {
        self.best = Some(Best::Lowest);
        self
    }
}

/// One cell. Strings and numbers convert into it: `"NCE".into()`, `36.1.into()`.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Words. In a column of numbers (`Fail`) they sort after every number.
    Text(String),
    /// A number, written in its column's format.
    Number(f64),
    /// A mean over seeds and its spread, written `36.1 ± 0.2` and sorted by the mean.
    Spread {
        /// The mean.
        mean: f64,
        /// The deviation to either side.
        deviation: f64,
    },
    /// A number with its own words: sorted by `value`, read as `text` (`E6`, `baseline`).
    Shown {
        /// What the cell sorts by and what CSV receives.
        value: f64,
        /// What a person reads.
        text: String,
    },
}

impl Cell {
    /// The number the cell sorts by, if it is one.
    pub fn value(&self) -> Option<f64> {
        let value = match *self {
            Self::Text(_) => return None,
            Self::Number(value) | Self::Shown { value, .. } => value,
            Self::Spread { mean, .. } => mean,
        };
        value.is_finite().then_some(value)
    }

    fn written(&self, format: Format) -> String {
        match self {
            Self::Text(text) | Self::Shown { text, .. } => crate::text::clean(text),
            Self::Number(value) => format.write(*value),
            Self::Spread { mean, deviation } => {
                format!("{} ± {}", format.write(*mean), format.write(*deviation))
            }
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<usize> for Cell {
    fn from(value: usize) -> Self {
        Self::Number(value as f64)
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Self {
        Self::Number(value as f64)
    }
}

/// An absent value leaves the cell empty.
impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or_else(|| Self::Text(String::new()), Into::into)
    }
}

/// A titled table. See the [crate's example](crate).
#[derive(Clone, Debug)]
pub struct Table {
    title: String,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without columns; an empty title is not printed.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), columns: Vec::new(), rows: Vec::new() }
    }

    /// Adds a column at the right.
    pub fn column(mut self, column: Column) -> Self {
        self.columns.push(column);
        self
    }

    /// Adds a row, for building a table in one expression.
    pub fn row(mut self, cells: impl IntoIterator<Item = Cell>) -> Self {
        self.push_row(cells);
        self
    }

    /// Adds a row to a table that is filled in a loop.
    ///
    /// A short row ends in empty cells; a long one gains nameless columns. A report is written at
    /// the end of hours of training, and must not lose them to a miscounted row.
    pub fn push_row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The columns, with nameless ones for the cells of rows that are too long.
    fn all_columns(&self) -> Vec<Column> {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut columns = self.columns.clone();
        while columns.len() < count {
            columns.push(Column::text(""));
        }
        columns
    }

    /// The best number of a column, if the column asks for one and there is a choice to be made.
    fn best(&self, place: usize, column: &Column) -> Option<f64> {
        let mut values = self.rows.iter().filter_map(|row| row.get(place)?.value());
        let first = values.next()?;
        let mut rest = values.peekable();
        rest.peek()?;
        match column.best? {
            Best::Highest => Some(rest.fold(first, f64::max)),
            Best::Lowest => Some(rest.fold(first, f64::min)),
        }
    }
}
