//! Prints the levels of instructions this machine has, slowest first.

use lookalike_kernels::Cpu;

fn main() {
    for cpu in Cpu::available() {
        println!("{}", cpu.name());
    }
}
