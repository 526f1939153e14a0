//! Prints the figures of the statements beside those of bare SQL in the same run.
//!
//! `cargo run --release -p tenure-store --example bench --features bench,postgres,sqlite -- quick`
//! starts PostgreSQL by itself; without `quick` it takes about ten minutes.
#![expect(clippy::print_stdout, reason = "an example is a program")]

use tenure_store::bench::{Figure, Size, postgres, sqlite};
use tenure_store::testing::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let is_quick = std::env::args().any(|arg| arg == "quick");
    let size = if is_quick {
        Size {
            events: 50_000,
            rounds: 3,
            standing: 200_000,
        }
    } else {
        Size::default()
    };
    let server = Server::start().await;
    let (first, second) = (server.database().await, server.database().await);
    let mut missed = 0_u32;
    let mut report = |figure: &Figure| {
        missed += u32::from(!figure.holds());
        println!("{figure}");
    };
    println!(
        "PostgreSQL, {} events of 500 bytes, median of {} rounds",
        size.events, size.rounds
    );
    postgres([&first.url, &second.url], size, &mut report).await?;
    println!("SQLite, full sync");
    let folder = tempfile::tempdir()?;
    sqlite(folder.path(), size, &mut report).await?;
    println!("{missed} figures below what is promised");
    Ok(())
}
