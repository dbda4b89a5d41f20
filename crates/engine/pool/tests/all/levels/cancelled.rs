//! Are requests that wait at a ceiling gone at once when they are cancelled, without a trace, and are those that have begun whole?

use super::{BLOCK, CAPPED, on_pool};
use forebay_base::MIB;
use forebay_pool::{Cancellation, IoError, Setting, SyncPolicy, Volume, VolumeChange};
use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use std::time::Duration;

#[test]
fn a_cancelled_write_has_changed_nothing_or_is_whole() {
    on_pool(|pool| async move {
        // A write takes 50 ms.
        pool.cap(20).await;
        let info = pool.volume("a", Some(CAPPED)).await;
        let volume = Volume::open(&pool.rt, info.id).unwrap();
        let cancellation = Cancellation::default();
        let cancellable = volume.cancellable(&cancellation);
        let writes = join_all((0..32u64).map(|nth| {
            let (volume, rt) = (cancellable.clone(), pool.rt.clone());
            let data = rt.arena().copy(&[nth as u8 + 1; 2 * BLOCK]).freeze();
            async move { volume.write(nth * 2 * BLOCK as u64, vec![data], false).await }
        }));
        let begun = pool.rt.now();
        let cancel = async {
            pool.rt.sleep(Duration::from_millis(220)).await;
            cancellation.cancel();
        };
        let (results, ()) = join(writes, cancel).await;
        // All are over long before 32 have had their time.
        assert!(pool.rt.now() < begun.after(Duration::from_millis(300)));
        let done = results.iter().filter(|result| result.is_ok()).count();
        assert!((3..=6).contains(&done), "{done} of 32");
        assert!(results.iter().all(|result| matches!(result, Ok(()) | Err(IoError::Cancelled))));

        // Others do not wait for the time of those that did not come.
        let now = pool.rt.now();
        assert!(pool.write(&volume, 300).await);
        assert!(pool.rt.now() < now.after(Duration::from_millis(120)));

        pool.cap(1_000_000).await;
        for (nth, result) in results.iter().enumerate() {
            let parts = volume.read(nth as u64 * 2 * BLOCK as u64, 2 * BLOCK).await.unwrap();
            let expected = if result.is_ok() { nth as u8 + 1 } else { 0 };
            assert!(parts.iter().all(|part| part.iter().all(|byte| *byte == expected)), "write {nth}");
        }
        // And through the cancelled handle nothing begins any more.
        let data = pool.rt.arena().copy(&[9; BLOCK]).freeze();
        let late = cancellable.write(0, vec![data], false).now_or_never();
        assert_eq!(late, Some(Err(IoError::Cancelled)));
    });
}

#[test]
fn every_kind_of_request_can_be_cancelled_while_it_waits() {
    on_pool(|pool| async move {
        pool.cap(20).await;
        let info = pool.volume("a", Some(CAPPED)).await;
        // Otherwise a flush asks for nothing.
        let sync = VolumeChange { sync: Setting::Own(SyncPolicy::Standard), ..VolumeChange::default() };
        pool.engine.volume_set("tank/a", sync).await.expect("set");
        let volume = Volume::open(&pool.rt, info.id).unwrap();
        assert!(pool.write(&volume, 0).await);
        let cancellation = Cancellation::default();
        let cancellable = volume.cancellable(&cancellation);
        // Those before them have the next two seconds.
        let others = join_all((1..40).map(|block| pool.write(&volume, block)));
        let begun = pool.rt.now();
        let copy = |byte: u8| pool.rt.arena().copy(&[byte; BLOCK]).freeze();
        let (rt, one) = (&pool.rt, &cancellable);
        let waiting = async {
            let all = [
                async { one.read(0, BLOCK).await.map(drop) }.boxed_local(),
                one.write(0, vec![copy(7)], true).boxed_local(),
                one.discard(0, MIB, false).boxed_local(),
                one.write_zeroes(0, MIB, true).boxed_local(),
                async { one.compare_and_write(0, copy(1), copy(8)).await.map(drop) }.boxed_local(),
                one.flush().boxed_local(),
            ];
            let cancel = async {
                rt.sleep(Duration::from_millis(100)).await;
                cancellation.cancel();
            };
            let (results, ()) = join(join_all(all), cancel).await;
            assert!(rt.now() < begun.after(Duration::from_millis(200)));
            assert_eq!(results, vec![Err(IoError::Cancelled); 6]);
            pool.cap(1_000_000).await;
        };
        let (written, ()) = join(others, waiting).await;
        assert!(written.into_iter().all(|is_ok| is_ok), "only its own requests are cancelled");
        for block in 0..40 {
            let parts = volume.read(block * BLOCK as u64, BLOCK).await.unwrap();
            assert!(parts[0].iter().all(|byte| *byte == block as u8 + 1), "block {block}");
        }
    });
}
