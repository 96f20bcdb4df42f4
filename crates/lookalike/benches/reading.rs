use std::time::Instant;
use lookalike::data::*;
fn main(){
    let path = std::env::args().nth(1).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    for threads in [1,2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        for _ in 0..4 {
            let t = Instant::now();
            let (d,_) = pool.install(|| xc::parse("f", &bytes, &ReadOptions::default()).unwrap());
            let s = t.elapsed().as_secs_f64();
            println!("{threads} threads: {:.0} MB/s nnz {}", bytes.len() as f64/1e6/s, d.feature_ids.len());
        }
    }
}
