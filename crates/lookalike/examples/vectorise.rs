//! Prints the rows that the vectoriser makes of a file of texts, a JSON object a
//! line, after a first line that names the features. `scripts/compare_vectoriser.py`
//! compares them with scikit-learn's.
//!
//! ```text
//! cargo run --release --example vectorise -- texts.txt '{"characters": {"min": 2, "max": 4}, "words": null}'
//! ```
//!
//! `texts.txt` has a text a line; the options are those of `TextOptions`.

use std::io::{BufWriter, Write, stdout};

use lookalike::text::{Feature, Format, ReadOptions, TextFile, TextOptions, fit_dataset};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: vectorise TEXTS [OPTIONS AS JSON]")?;
    let options: TextOptions = serde_json::from_str(arguments.next().as_deref().unwrap_or("{}"))?;
    let lines = ReadOptions { format: Some(Format::Lines), ..Default::default() };
    let fitted = fit_dataset(&TextFile::open(path, &lines)?, &options)?;

    let names: Vec<String> = (0..fitted.vectoriser.num_features() as u32)
        .filter_map(|id| fitted.vectoriser.feature(id))
        .map(|feature| match feature {
            Feature::Words(text) => text,
            Feature::Characters(text) => text.into(),
            bucket => bucket.to_string(),
        })
        .collect();
    let mut out = BufWriter::new(stdout().lock());
    writeln!(out, "{}", serde_json::json!({ "features": names }))?;
    let view = fitted.dataset.view();
    for row in 0..view.len() {
        let (ids, values) = view.features(row);
        writeln!(out, "{}", serde_json::json!({ "ids": ids, "values": values }))?;
    }
    Ok(())
}
