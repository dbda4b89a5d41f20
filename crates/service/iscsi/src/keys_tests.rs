//! Is every offer answered as its key's section says? A table of offers and answers, from the RFC.

use super::*;

fn answer_with(own: Parameters, discovery: bool, text: &str) -> (Result<String, Broken>, Parameters) {
    let mut negotiation = Negotiation::target(own);
    negotiation.set_discovery(discovery);
    let pairs: Vec<(&str, &str)> =
        text.split_whitespace().map(|pair| pair.split_once('=').unwrap()).collect();
    let mut answers = Vec::new();
    let result = negotiation.handle(&pairs, &mut answers);
    let answers = String::from_utf8(answers).unwrap().replace('\0', " ").trim_end().to_owned();
    (result.map(|()| answers), negotiation.agreed())
}

#[test]
fn offers_are_answered_as_the_rfc_says() {
    let table = [
        ("HeaderDigest=CRC32C,None", "HeaderDigest=CRC32C"),
        ("HeaderDigest=None,CRC32C", "HeaderDigest=None"),
        ("DataDigest=X-md5,CRC32C", "DataDigest=CRC32C"),
        ("DataDigest=X-md5", "DataDigest=Reject"),
        ("MaxConnections=8", "MaxConnections=1"),
        ("MaxConnections=0", "MaxConnections=Reject"),
        ("MaxConnections=65536", "MaxConnections=Reject"),
        ("InitialR2T=No", "InitialR2T=No"),
        ("InitialR2T=Yes", "InitialR2T=Yes"),
        ("InitialR2T=no", "InitialR2T=Reject"),
        ("ImmediateData=Yes", "ImmediateData=Yes"),
        ("ImmediateData=No", "ImmediateData=No"),
        ("MaxBurstLength=16776192", "MaxBurstLength=1048576"),
        ("MaxBurstLength=512", "MaxBurstLength=512"),
        ("MaxBurstLength=511", "MaxBurstLength=Reject"),
        ("MaxBurstLength=16777216", "MaxBurstLength=Reject"),
        ("FirstBurstLength=0x10000", "FirstBurstLength=65536"),
        // It cannot exceed what bounds every burst, in whichever order they come.
        ("FirstBurstLength=65536 MaxBurstLength=8192", "MaxBurstLength=8192 FirstBurstLength=8192"),
        (
            "InitialR2T=Yes ImmediateData=No FirstBurstLength=65536",
            "InitialR2T=Yes ImmediateData=No FirstBurstLength=Irrelevant",
        ),
        ("DefaultTime2Wait=0", "DefaultTime2Wait=2"),
        ("DefaultTime2Wait=3600", "DefaultTime2Wait=3600"),
        ("DefaultTime2Wait=3601", "DefaultTime2Wait=Reject"),
        ("DefaultTime2Retain=20", "DefaultTime2Retain=0"),
        ("MaxOutstandingR2T=1", "MaxOutstandingR2T=1"),
        ("MaxOutstandingR2T=65535", "MaxOutstandingR2T=8"),
        ("MaxOutstandingR2T=0", "MaxOutstandingR2T=Reject"),
        ("DataPDUInOrder=No", "DataPDUInOrder=Yes"),
        ("DataSequenceInOrder=No", "DataSequenceInOrder=Yes"),
        ("ErrorRecoveryLevel=2", "ErrorRecoveryLevel=0"),
        ("ErrorRecoveryLevel=3", "ErrorRecoveryLevel=Reject"),
        ("TaskReporting=FastAbort,RFC3720", "TaskReporting=RFC3720"),
        ("TaskReporting=FastAbort", "TaskReporting=Reject"),
        ("iSCSIProtocolLevel=2", "iSCSIProtocolLevel=2"),
        ("iSCSIProtocolLevel=1", "iSCSIProtocolLevel=1"),
        ("iSCSIProtocolLevel=32", "iSCSIProtocolLevel=Reject"),
        ("IFMarker=No OFMarker=Yes", "IFMarker=No OFMarker=No"),
        ("IFMarkInt=2048~8192", "IFMarkInt=Reject"),
        ("X-com.example.key=1", "X-com.example.key=NotUnderstood"),
        ("MaxRecvDataSegmentLength=262144", ""),
        ("MaxRecvDataSegmentLength=511", "MaxRecvDataSegmentLength=Reject"),
        ("InitiatorAlias=x", ""),
    ];
    for (offer, expected) in table {
        assert_eq!(answer_with(Parameters::TARGET, false, offer).0.as_deref(), Ok(expected), "{offer}");
    }
}

#[test]
fn what_cannot_be_answered_ends_the_login() {
    let many: String = (0..33).map(|n| format!("X-{n}=1 ")).collect();
    for (offer, expected) in [
        ("InitialR2T=No InitialR2T=Yes", Broken::Repeated),
        ("TargetAlias=x", Broken::Misplaced),
        ("TargetPortalGroupTag=1", Broken::Misplaced),
        (&many, Broken::TooMany),
    ] {
        assert_eq!(answer_with(Parameters::TARGET, false, offer).0, Err(expected), "{offer}");
    }
}

#[test]
fn discovery_sessions_have_no_use_for_most_keys() {
    let offer =
        "MaxConnections=1 InitialR2T=No MaxBurstLength=512 HeaderDigest=None MaxRecvDataSegmentLength=512";
    let (answer, agreed) = answer_with(Parameters::TARGET, true, offer);
    let expected =
        "HeaderDigest=None MaxConnections=Irrelevant InitialR2T=Irrelevant MaxBurstLength=Irrelevant";
    assert_eq!(answer.as_deref(), Ok(expected));
    assert_eq!(agreed, Parameters { segment_max_peer: 512, ..Parameters::DEFAULTS });
}

/// Both sides must end with the same result, whatever each prefers.
#[test]
fn both_sides_agree() {
    let variants = [
        Parameters::TARGET,
        Parameters::DEFAULTS,
        Parameters { initial_r2t: true, immediate_data: false, burst_max: 512, ..Parameters::TARGET },
        Parameters {
            immediate_data: false,
            data_digest: false,
            r2t_outstanding_max: 3,
            ..Parameters::TARGET
        },
        Parameters {
            header_digest: false,
            first_burst_max: 512,
            time2wait: 9,
            time2retain: 7,
            ..Parameters::TARGET
        },
        Parameters { segment_max_own: 4096, protocol_level: 1, ..Parameters::TARGET },
    ];
    for ours in variants {
        for theirs in variants {
            let (mut initiator, mut target) = (Negotiation::initiator(ours), Negotiation::target(theirs));
            let (mut offer, mut answer, mut rest) = (Vec::new(), Vec::new(), Vec::new());
            initiator.offer(&mut offer);
            target.handle(&crate::text::parse(&offer).unwrap(), &mut answer).unwrap();
            target.tell_segment(&mut answer);
            initiator.handle(&crate::text::parse(&answer).unwrap(), &mut rest).unwrap();
            assert_eq!(rest, b"", "answers are not answered");
            let (i, t) = (initiator.agreed(), target.agreed());
            let mirrored =
                Parameters { segment_max_own: t.segment_max_peer, segment_max_peer: t.segment_max_own, ..t };
            assert_eq!(i, mirrored, "{ours:?} {theirs:?}");
            assert!(t.first_burst_max <= t.burst_max || (t.initial_r2t && !t.immediate_data));
            assert_eq!(t.header_digest, ours.header_digest && theirs.header_digest);
            assert_eq!(t.initial_r2t, ours.initial_r2t || theirs.initial_r2t);
            assert_eq!(t.immediate_data, ours.immediate_data && theirs.immediate_data);
            assert_eq!(t.burst_max, ours.burst_max.min(theirs.burst_max));
            assert_eq!(t.time2wait, ours.time2wait.max(theirs.time2wait));
            assert_eq!(t.segment_max_own, theirs.segment_max_own);
        }
    }
}

/// An answer that the result function cannot give is a lie.
#[test]
fn an_impossible_answer_is_refused() {
    for answer in [
        "HeaderDigest=CRC64",
        "InitialR2T=maybe",
        "MaxBurstLength=2097152",
        "MaxConnections=2",
        "ImmediateData=perhaps",
        "DefaultTime2Wait=1",
        "ErrorRecoveryLevel=1",
        "DataPDUInOrder=No",
        "TaskReporting=FastAbort",
    ] {
        let mut initiator = Negotiation::initiator(Parameters::TARGET);
        initiator.offer(&mut Vec::new());
        let pair = answer.split_once('=').unwrap();
        assert_eq!(initiator.handle(&[pair], &mut Vec::new()), Err(Broken::Value), "{answer}");
    }
}
