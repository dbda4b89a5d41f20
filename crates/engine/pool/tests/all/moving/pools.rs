//! Two pools in a simulated world, which volumes move between.

use super::*;

pub struct Pools {
    pub rt: Rt,
    pub world: World,
    pub engine: Engine,
    pub paths: [Vec<String>; 2],
    pub events: Arc<Mutex<Vec<Event>>>,
}

impl Pools {
    pub fn spec(&self, pool: usize, layout: Layout, shards: usize) -> PoolSpec {
        PoolSpec {
            name: NAMES[pool].into(),
            layout,
            disks: self.paths[pool].clone(),
            log_disks: Vec::new(),
            spare_disks: Vec::new(),
            cache_disks: Vec::new(),
            enclosures: Vec::new(),
            sectors: Vec::new(),
            shards,
            log_bytes: None,
            force: false,
        }
    }

    pub fn volume_spec(&self, pool: &str, name: &str, size: u64) -> VolumeSpec {
        VolumeSpec {
            pool: pool.into(),
            name: name.into(),
            size,
            block_size: BLOCK as u32,
            sync: Some(SyncPolicy::Always),
            compression: Some(Compression::Lz4),
            format: VolumeFormat::Thin,
            level: None,
            own_hosts: false,
        }
    }

    pub async fn create(&self, name: &str, size: u64, format: VolumeFormat) -> Result<Volume, Error> {
        let (pool, own) = name.split_once('/').expect("POOL/NAME");
        let spec = VolumeSpec { format, ..self.volume_spec(pool, own, size) };
        self.engine.volume_create(spec).await.map(|info| self.open(info.id))
    }

    pub fn open(&self, id: Id) -> Volume {
        Volume::open(&self.rt, id).expect("open")
    }

    pub async fn move_to(&self, volume: &str, pool: &str) -> Result<VolumeInfo, Error> {
        self.engine.volume_move(volume, pool, Arc::default()).await
    }

    pub async fn import(&self, pool: usize) {
        let paths = self.paths[pool].clone();
        let report = check(&self.rt, &paths).await.expect("checked");
        assert_eq!(report.problems, Vec::<String>::new());
        self.engine.pool_import(NAMES[pool], paths, Import::default()).await.expect("imported");
    }

    pub async fn export(&self, pool: usize) {
        self.engine.pool_export(NAMES[pool]).await.expect("exported");
    }

    /// Bytes that a pool uses once all is given back that is to be.
    pub async fn used(&self, pool: usize) -> u64 {
        for _ in 0..4 {
            self.engine.checkpoint(NAMES[pool]).await.expect("checkpoint");
            self.rt.sleep(Duration::from_millis(50)).await;
        }
        let pools = self.engine.pools().await;
        pools.iter().find(|status| status.name == NAMES[pool]).expect("there").used
    }

    /// Whether a pool uses as much as it did once, when it had no chunk of data yet: the entry of one that is empty and stays takes a leaf of its table, and
    /// that a node above.
    pub async fn is_back_at(&self, pool: usize, before: u64) -> bool {
        [0, 2 * 16384].contains(&self.used(pool).await.wrapping_sub(before))
    }

    /// Names of all live volumes.
    pub async fn volumes(&self) -> Vec<String> {
        let all = self.engine.volumes(None).await.expect("listed");
        all.into_iter().map(|info| format!("{}/{}", info.pool, info.name)).collect()
    }

    pub fn told(&self, code: &str) -> usize {
        self.events.lock().expect("nobody panicked").iter().filter(|event| event.code == code).count()
    }
}

/// Runs `main` in a world with these disks, or with new ones for two pools.
pub fn world<W: Future<Output = ()> + 'static>(
    seed: u64,
    disks: Option<Vec<Image>>,
    layouts: [Layout; 2],
    main: impl FnOnce(Rc<Pools>) -> W,
) -> World {
    // Copying takes long enough for something to happen meanwhile.
    world_at(64 << 20, seed, disks, layouts, main)
}

/// The same with disks that transfer so many bytes a second.
pub fn world_at<W: Future<Output = ()> + 'static>(
    rate: u64,
    seed: u64,
    disks: Option<Vec<Image>>,
    layouts: [Layout; 2],
    main: impl FnOnce(Rc<Pools>) -> W,
) -> World {
    let world = World::new(WorldConfig { rate: Some(rate), ..WorldConfig::new(seed) });
    let widths = layouts.map(|layout| layout.width());
    let is_new = disks.is_none();
    let images = disks.unwrap_or_else(|| (0..widths[0] + widths[1]).map(|_| Image::new(64 * MIB)).collect());
    images.into_iter().for_each(|image| {
        world.add_disk(image);
    });
    let (executor, cores): (_, Cores) = world.executor(2);
    let rt = executor.rt().clone();
    let names = |range: std::ops::Range<usize>| range.map(|nth| format!("sim{nth}")).collect::<Vec<_>>();
    let paths = [names(0..widths[0]), names(widths[0]..widths[0] + widths[1])];
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = events.clone();
    let tell = Arc::new(move |event| sink.lock().expect("nobody panicked").push(event));
    let config = EngineConfig { memory: 16 << 20, events: tell, host: Host::default() };
    let pools =
        Rc::new(Pools { rt, world: world.clone(), engine: Engine::new(cores, config), paths, events });
    let test = main(pools.clone());
    let whole = async move {
        if is_new {
            for (pool, layout) in layouts.into_iter().enumerate() {
                pools.engine.pool_create(pools.spec(pool, layout, 2)).await.expect("created");
            }
        }
        test.await;
    };
    world.run(&executor, LIMIT, whole).expect("finishes");
    world
}

pub const PLAIN: [Layout; 2] = [Layout::Single, Layout::Mirror];
pub const PARITY: [Layout; 2] = [Layout::Parity { data: 2, parity: 1 }, Layout::Single];

pub fn on_pools<W: Future<Output = ()> + 'static>(main: impl Fn(Rc<Pools>) -> W) {
    for layouts in [PLAIN, PARITY] {
        world(1, None, layouts, |pools| {
            let test = main(pools.clone());
            async move {
                test.await;
                for pool in [0, 1] {
                    pools.export(pool).await;
                    pools.import(pool).await;
                }
            }
        });
    }
}

pub fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind)
}
