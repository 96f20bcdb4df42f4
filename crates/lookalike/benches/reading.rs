use std::time::Instant;
use lookalike::data::*;
fn cpu()->f64{ std::fs::read_to_string("/proc/thread-self/schedstat").unwrap().split(' ').next().unwrap().parse::<f64>().unwrap()/1e9 }
fn main(){
    let path = std::env::args().nth(1).unwrap();
    let bytes = std::fs::read(&path).unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        for _ in 0..6 {
            let t = Instant::now();
            let (s,d) = pool.install(|| {let c=cpu(); let (d,_)=xc::parse("f", &bytes, &ReadOptions::default()).unwrap(); (cpu()-c,d)});
            let w = t.elapsed().as_secs_f64();
            println!("cpu {:.0} MB/s wall {:.0} nnz {}", bytes.len() as f64/1e6/s,bytes.len() as f64/1e6/w, d.feature_ids.len());
        }
}
