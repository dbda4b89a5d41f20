//! Connections over the ring.

use forebay_runtime::uring;

#[test]
fn bytes_arrive_in_order_and_the_end_is_seen() {
    uring::block_on(|rt| async move {
        let listener = rt.listen("127.0.0.1:0").unwrap();
        let address = listener.address();
        let accept = listener.accept();
        let client = rt.connect(&address).await.unwrap();
        let server = accept.await.unwrap();
        let parts: Vec<_> = (0..3000u32).map(|n| rt.arena().copy(&n.to_le_bytes()).freeze()).collect();
        client.send(parts).await.unwrap();
        let mut received = Vec::new();
        while received.len() < 12000 {
            let (bytes, result) = server.recv(rt.buffer(5000)).await;
            received.extend_from_slice(&bytes[..result.unwrap()]);
        }
        let expected: Vec<u8> = (0..3000u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(received, expected);
        drop(client);
        let (_, result) = server.recv(rt.buffer(100)).await;
        assert_eq!(result, Ok(0));
    })
    .unwrap();
}
