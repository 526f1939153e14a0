use std::time::Duration;
use tenure_core::store::*;
use tenure_core::testing::token;
use tenure_core::*;
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;

#[tokio::test]
async fn smoke() {
    let db = tenure_store::testing::postgres().await;
    let config = StoreConfig {
        schema: Some(Identifier::new("work").unwrap()),
        ..StoreConfig::default()
    };
    println!(
        "{:?}",
        PostgresStore::open(&db.url, &config).await.map(drop)
    );
    println!(
        "{:?}",
        PostgresStore::migrate(&db.url, &config).await.unwrap()
    );
    println!(
        "{:?}",
        PostgresStore::migrate(&db.url, &config).await.unwrap()
    );
    let store = PostgresStore::open(&db.url, &config).await.unwrap();
    let events: Vec<Event> = (0..5)
        .map(|n| Event::new("t", &n).unwrap().header("a", "b").unwrap())
        .collect();
    println!("{:?}", store.enqueue(&events).await.unwrap());
    println!(
        "{:?}",
        store
            .enqueue(&[
                Event::new("t", &1).unwrap().dedupe("k").unwrap(),
                Event::new("t", &1).unwrap().dedupe("k").unwrap(),
                Event::new("u", &1).unwrap()
            ])
            .await
            .unwrap()
    );
    println!(
        "{:?}",
        store
            .enqueue(&[Event::new("t", &1).unwrap().dedupe("k").unwrap()])
            .await
            .unwrap()
    );
    println!(
        "{:?}",
        store
            .enqueue(&[Event::new("t", &1).unwrap().queue("k").unwrap()])
            .await
    );
    let held = store
        .claim(&Claim::new(token("w", 1), 4))
        .await
        .unwrap()
        .unwrap();
    println!("{held:#?}");
    println!("{:?}", store.claim(&Claim::new(token("w", 1), 1)).await);
    println!(
        "{:?}",
        store
            .renew(&Renew::new(vec![token("w", 1), token("w", 2)], Term::HEAVY))
            .await
            .unwrap()
    );
    let ids = held.ids();
    let s = Settle::new(token("w", 1))
        .item(ids[0], Outcome::Done)
        .item(
            ids[1],
            Outcome::Retry {
                after: Duration::from_secs(5),
                error: "x".into(),
            },
        )
        .item(ItemId::new(99), Outcome::Done);
    println!("{:?}", store.settle(&s).await.unwrap());
    println!("{:?}", store.settle(&s).await.unwrap());
    println!(
        "{:?}",
        store
            .settle_and_claim(
                &Settle::new(token("w", 1)).done([ids[2], ids[3]]),
                &Claim::new(token("w", 3), 2)
            )
            .await
            .unwrap()
    );
    println!(
        "{:?}",
        store
            .settle_and_claim(
                &Settle::new(token("w", 3)).rest(Rest::Release),
                &Claim::new(token("w", 4), 20)
            )
            .await
            .unwrap()
    );
    println!("{:?}", store.find(&ids).await.unwrap());
    println!("{:?}", store.timeline(ids[1]).await.unwrap());
    println!("{:?}", store.count(None).await.unwrap());
    println!("{:?}", store.list(&Filter::default(), 2).await.unwrap());
    for s in State::ALL {
        println!(
            "{s} {:?}",
            store
                .list(
                    &Filter {
                        state: Some(s),
                        ..Filter::default()
                    },
                    2
                )
                .await
                .unwrap()
                .records
                .iter()
                .map(|r| r.id)
                .collect::<Vec<_>>()
        );
    }
    println!(
        "{:?}",
        store
            .bury(&Bury {
                id: ids[1],
                token: token("op", 1),
                reason: "why".into(),
                now: None
            })
            .await
            .unwrap()
    );
    println!(
        "{:?}",
        store
            .bury(&Bury {
                id: ids[1],
                token: token("op", 1),
                reason: "why".into(),
                now: None
            })
            .await
            .unwrap()
    );
    println!(
        "{:?}",
        store
            .replay(&Replay {
                ids: vec![ids[0], ids[1], ItemId::new(6), ItemId::new(99)],
                now: None
            })
            .await
            .unwrap()
    );
    println!("{:?}", store.timeline(ids[1]).await.unwrap());
    let r = Reap::new(10, LapsePolicy::default()).at(Timestamp::from_micros(4_000_000_000_000_000));
    println!("{:?}", store.reap(&r).await.unwrap());
}
