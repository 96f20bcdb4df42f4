//! Good questions.

use lookalike::artifact;
use lookalike::data::Dataset;
use lookalike::model::Model;
use lookalike::predict::{Ask, Predictor};
use lookalike_kernels::Cpu;
use serde_json::{Value, json};

use crate::support::{EMBEDDINGS, NUMBERS, Running, TEXT, fixture};

/// Names, numbers and scores of the first answer.
fn classes(answer: &Value) -> Vec<(String, u32, f32)> {
    let class = |class: &Value| {
        let score = class["score"].as_f64().unwrap() as f32;
        (class["name"].as_str().unwrap().to_owned(), class["id"].as_u64().unwrap() as u32, score)
    };
    answer["answers"][0]["classes"].as_array().unwrap().iter().map(class).collect()
}

/// What the library answers.
fn expected(
    model: &str,
    data: impl Fn(&Predictor<&Model>) -> Dataset,
    ask: Ask<'_>,
) -> Vec<(String, u32, f32)> {
    let saved = artifact::load(&fixture(model)).unwrap();
    let predictor = Predictor::new(&saved.model, Cpu::from_env().unwrap());
    let data = data(&predictor);
    let ranking = predictor.rank(&data.view(), &[0], ask);
    predictor.named(&ranking, 0).into_iter().map(|class| (class.name, class.class, class.score)).collect()
}

#[test]
fn a_text_is_answered_as_the_library_does() {
    let service = Running::new(TEXT);
    let text = "Muenchen";
    let answer = service.predict(json!({ "text": text, "k": 4, "probabilities": true }).to_string());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(answer.header("server-timing").unwrap().starts_with("wait;dur="));
    let ask = Ask { probabilities: true, ..Ask::best(4) };
    let library = expected(TEXT, |predictor| predictor.example_of_text(text).unwrap(), ask);
    assert_eq!(classes(&answer.good()), library);
    assert_eq!(library.len(), 4);
    assert_eq!(answer.json()["answers"][0]["prior"], false);
    let empty = service.predict(r#"{"text": ""}"#).good();
    assert_eq!(empty["answers"][0]["prior"], true);
    assert_eq!(classes(&empty).len(), 5);
}

#[test]
fn features_come_in_two_forms_and_any_order() {
    let service = Running::new(NUMBERS);
    let mut features = [(2, 1.5), (0, 0.25), (5, -2.0)];
    let pairs = service.predict(json!({ "features": features, "k": 3 }).to_string()).good();
    let object = service.predict(r#"{"features": {"5": -2, "0": 0.25, "2": 1.5}, "k": 3}"#).good();
    assert_eq!(pairs, object);
    features.sort_unstable_by_key(|&(id, _)| id);
    let data = |predictor: &Predictor<&Model>| {
        let mut data = Dataset::empty(predictor.model().num_features(), predictor.model().num_classes());
        data.push(features, &[]);
        data
    };
    assert_eq!(classes(&pairs), expected(NUMBERS, data, Ask::best(3)));
}

#[test]
fn a_vector_for_a_model_of_vectors() {
    let service = Running::new(EMBEDDINGS);
    let card = service.get("/v1/model").good();
    assert_eq!(card["reads"], "vector");
    let width = card["features"].as_u64().unwrap();
    let vector: Vec<f64> = (0..width).map(|i| if i % 3 == 0 { 0.0 } else { 0.5 - i as f64 }).collect();
    let features: Vec<(usize, f64)> =
        vector.iter().copied().enumerate().filter(|&(_, value)| value != 0.0).collect();
    let dense = service.predict(json!({ "vector": vector }).to_string()).good();
    assert_eq!(dense, service.predict(json!({ "features": features }).to_string()).good());
    let short = service.predict(json!({ "vector": vector[1..] }).to_string());
    assert_eq!(short.error(), (422, "vector_length".into()));
}

#[test]
fn wishes_are_granted() {
    let service = Running::new(TEXT);
    let ask = |wishes: Value| {
        let mut question = json!({ "text": "Wien", "k": 5 });
        question.as_object_mut().unwrap().extend(wishes.as_object().unwrap().clone());
        classes(&service.predict(question.to_string()).good())
    };
    let all = ask(json!({}));
    let above = ask(json!({ "threshold": all[1].2 }));
    assert_eq!(above, all[..2]);
    let chosen = ask(json!({ "only": [all[3].0, all[1].0] }));
    assert_eq!(chosen, [all[1].clone(), all[3].clone()]);
    assert_eq!(ask(json!({ "search": "fast" }))[0], all[0]);
    let probabilities = ask(json!({ "probabilities": true }));
    assert!(probabilities.iter().all(|class| (0.0..=1.0).contains(&class.2)));
    assert_eq!(probabilities[0].0, all[0].0);
}

#[test]
fn an_explanation_adds_up_to_the_lead() {
    let service = Running::new(TEXT);
    let answer = service.predict(r#"{"text": "Muenchen", "k": 2, "explain": true}"#).good();
    for class in answer["answers"][0]["classes"].as_array().unwrap() {
        let part = |name: &str| class["explanation"][name].as_f64().unwrap();
        let features = class["explanation"]["features"].as_array().unwrap();
        assert!(!features.is_empty() && features[0]["name"].is_string());
        let listed: f64 = features.iter().map(|feature| feature["contribution"].as_f64().unwrap()).sum();
        let sum = listed + part("other_features") + part("nearest_examples") + part("constant");
        assert!((sum - part("lead")).abs() < 1e-4 * part("lead").abs().max(1.0), "{class}");
    }
    let plain = service.predict(r#"{"text": "Muenchen", "k": 2}"#).good();
    assert!(plain["answers"][0]["classes"][0].get("explanation").is_none());
}

/// However requests are gathered, a question has one answer, to the bit.
#[test]
fn gathering_changes_no_bit() {
    let question = |i: usize| {
        let texts = ["Muenchen", "Wien", "Prag", "", "Koeln am Rhein", "Tokyo"];
        let items: Vec<_> = (0..1 + i % 3).map(|j| json!({ "text": texts[(i + j) % texts.len()] })).collect();
        json!({ "items": items, "k": 2 + i % 2, "probabilities": i.is_multiple_of(5), "explain": i.is_multiple_of(7) })
            .to_string()
    };
    let alone = Running::with(&fixture(TEXT), |settings| settings.queue.batch_items = 1);
    let single: Vec<String> = (0..40).map(|i| alone.predict(question(i)).body).collect();
    let gathering = Running::with(&fixture(TEXT), |settings| {
        settings.queue.gather = std::time::Duration::from_millis(100);
    });
    let together: Vec<String> = std::thread::scope(|scope| {
        let ask = |i| gathering.predict(question(i)).body;
        let all: Vec<_> = (0..40).map(|i| scope.spawn(move || ask(i))).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(together, single);
    let count = |service: &Running| {
        let metrics = service.get("/metrics").body;
        let line = metrics.lines().find(|line| line.starts_with("lookalike_batch_items_count")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u32>().unwrap()
    };
    assert_eq!(count(&alone), 40);
    assert!(count(&gathering) < 20, "{} batches", count(&gathering));
}

#[test]
fn lookalikes_of_a_class() {
    let service = Running::new(TEXT);
    let name = classes(&service.predict(r#"{"text": "Wien", "k": 1}"#).good())[0].0.clone();
    let saved = artifact::load(&fixture(TEXT)).unwrap();
    let id = saved.model.class_id(&name).unwrap();
    let nearest = Predictor::new(&saved.model, Cpu::from_env().unwrap()).lookalikes(id, 2);
    let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let answer = service.get(&format!("/v1/classes/{encoded}/lookalikes?k=2")).good();
    assert_eq!((answer["class"].as_str(), answer["id"].as_u64()), (Some(name.as_str()), Some(u64::from(id))));
    let found: Vec<(f32, u32)> = answer["lookalikes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|other| (other["cosine"].as_f64().unwrap() as f32, other["id"].as_u64().unwrap() as u32))
        .collect();
    assert_eq!(found, nearest);
    let unknown = service.get("/v1/classes/no%20such%20class/lookalikes");
    assert_eq!(unknown.error(), (404, "unknown_class".into()));
    assert_eq!(service.get(&format!("/v1/classes/{encoded}/lookalikes?k=0")).error().1, "k_out_of_range");
    assert_eq!(
        service.get(&format!("/v1/classes/{encoded}/lookalikes?count=1")).error().1,
        "unknown_parameter"
    );
    assert_eq!(service.get("/v1/classes/%ff/lookalikes").error(), (400, "malformed_path".into()));
}

/// The document and the routes tell of each other.
#[test]
fn the_document_knows_every_route() {
    let service = Running::new(NUMBERS);
    let document = service.get("/openapi.json").good();
    let paths = document["paths"].as_object().unwrap();
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys() {
            let path = path.replace("{name}", "1");
            let answer = service.send(&method.to_uppercase(), &path, "", b"");
            assert!(![404, 405].contains(&answer.status), "{method} {path}: {answer:?}");
        }
    }
    let source = include_str!("../../src/api.rs");
    let routes = source.split(".route(\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    let own_files = ["/", "/page.css", "/page.js"];
    let undocumented: Vec<&str> =
        routes.filter(|route| !paths.contains_key(*route) && !own_files.contains(route)).collect();
    assert_eq!(undocumented, Vec::<&str>::new());
}

#[test]
fn the_page_loads_nothing_from_elsewhere() {
    let service = Running::new(TEXT);
    let page = service.get("/");
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    for inline in ["<style", " style=", "onclick=", "<script>", "http://", "https://"] {
        assert!(!page.body.contains(inline), "{inline}");
    }
    for (path, kind) in [("/page.css", "text/css"), ("/page.js", "text/javascript")] {
        let file = service.get(path);
        assert_eq!(file.status, 200);
        assert!(file.header("content-type").unwrap().starts_with(kind));
        assert!(page.body.contains(path.trim_start_matches('/')), "{path}");
    }
}
