//! The OpenAPI document: written by hand in `assets/openapi.json`, with this service's
//! limits put in.

use serde_json::{Value, json};

use crate::settings::Settings;

/// The document as JSON.
pub(crate) fn document(settings: &Settings) -> String {
    let mut document = parsed();
    document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    let request = &mut document["components"]["schemas"]["PredictRequest"]["properties"];
    request["k"]["maximum"] = settings.limits.k.into();
    request["items"]["maxItems"] = settings.limits.items.into();
    document["components"]["parameters"]["K"]["schema"]["maximum"] = settings.limits.k.into();
    if settings.token.is_some() {
        document["security"] = json!([{ "bearer": [] }]);
    }
    document.to_string()
}

/// A document that is not JSON is found by the test below; nothing else can break it.
fn parsed() -> Value {
    serde_json::from_str(include_str!("../assets/openapi.json")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use lookalike_kernels::Cpu;

    use super::*;

    #[test]
    fn limits_and_token_are_in_the_document() {
        let mut settings = Settings::new(Cpu::detect());
        settings.limits.k = 77;
        settings.limits.items = 3;
        let open: Value = serde_json::from_str(&document(&settings)).unwrap();
        assert_eq!(open.pointer("/components/parameters/K/schema/maximum"), Some(&json!(77)));
        let request = &open["components"]["schemas"]["PredictRequest"]["properties"];
        assert_eq!((&request["k"]["maximum"], &request["items"]["maxItems"]), (&json!(77), &json!(3)));
        assert_eq!((open.get("security"), open["openapi"].as_str()), (None, Some("3.1.0")));
        settings.token = Some("t".into());
        let guarded: Value = serde_json::from_str(&document(&settings)).unwrap();
        assert_eq!(guarded["security"], json!([{ "bearer": [] }]));
    }
}
