// An NBD client that makes load: fixed newstyle handshake, so many requests of one size outstanding, at random places. It can come from any address
// of the loopback network, so that there are several clients.

import net from "node:net";

const OPTION_MAGIC = 0x49484156454f5054n;
const REQUEST_MAGIC = 0x25609513;
const GO = 7;
const REPLY_ACK = 1;
const REPLY_INFO = 3;

export class Client {
  constructor(socket) {
    this.socket = socket;
    this.chunks = [];
    this.length = 0;
    this.waiting = undefined;
    this.stopped = false;
    this.done = 0;
    socket.on("data", (chunk) => {
      this.chunks.push(chunk);
      this.length += chunk.length;
      this.wake();
    });
    socket.on("error", () => this.fail());
    socket.on("close", () => this.fail());
  }

  static async connect({ host, port, from = "127.0.0.1", name }) {
    const socket = net.connect({ host, port, localAddress: from });
    socket.setNoDelay(true);
    await new Promise((done, failed) => {
      socket.once("connect", done);
      socket.once("error", failed);
    });
    const client = new Client(socket);
    await client.read(18);
    const flags = Buffer.alloc(4);
    flags.writeUInt32BE(3);
    socket.write(flags);
    const bytes = Buffer.from(name);
    const option = Buffer.alloc(16 + 4 + bytes.length + 2);
    option.writeBigUInt64BE(OPTION_MAGIC, 0);
    option.writeUInt32BE(GO, 8);
    option.writeUInt32BE(4 + bytes.length + 2, 12);
    option.writeUInt32BE(bytes.length, 16);
    bytes.copy(option, 20);
    socket.write(option);
    for (;;) {
      const head = await client.read(20);
      const kind = head.readUInt32BE(12);
      const length = head.readUInt32BE(16);
      const data = length > 0 ? await client.read(length) : Buffer.alloc(0);
      if (kind === REPLY_INFO && data.readUInt16BE(0) === 0) client.size = Number(data.readBigUInt64BE(2));
      else if (kind === REPLY_ACK) break;
      else if (kind >= 0x8000_0000) throw new Error(`NBD: ${name}: refused (${(kind - 0x8000_0000).toString()}): ${data}`);
    }
    return client;
  }

  wake() {
    if (this.waiting && this.length >= this.waiting.bytes) {
      const { done, bytes } = this.waiting;
      this.waiting = undefined;
      const all = this.chunks.length === 1 ? this.chunks[0] : Buffer.concat(this.chunks);
      this.chunks = all.length > bytes ? [all.subarray(bytes)] : [];
      this.length -= bytes;
      done(all.subarray(0, bytes));
    }
  }

  read(bytes) {
    return new Promise((done, failed) => {
      this.waiting = { bytes, done, failed };
      if (this.socket.destroyed) this.fail();
      else this.wake();
    });
  }

  fail() {
    this.stopped = true;
    this.waiting?.failed(new Error("NBD: the connection is gone"));
    this.waiting = undefined;
  }

  /** `writes` in a hundred; goes on until it is stopped. With `rate`, no more than so many a second. */
  load({ depth = 8, bytes = 8192, writes = 50, rate = Infinity, within = this.size }) {
    const places = Math.floor(Math.min(within, this.size) / bytes);
    const payload = Buffer.alloc(bytes, 0x5a);
    let handle = 0n;
    const reads = new Map();
    const began = Date.now();
    let sent = 0;
    const send = () => {
      if (this.stopped) return;
      const ahead = sent / rate - (Date.now() - began) / 1000;
      if (ahead > 0) {
        setTimeout(send, ahead * 1000);
        return;
      }
      sent += 1;
      const head = Buffer.alloc(28);
      const write = Math.random() * 100 < writes;
      handle += 1n;
      head.writeUInt32BE(REQUEST_MAGIC, 0);
      head.writeUInt16BE(write ? 1 : 0, 6);
      head.writeBigUInt64BE(handle, 8);
      head.writeBigUInt64BE(BigInt(Math.floor(Math.random() * places)) * BigInt(bytes), 16);
      head.writeUInt32BE(bytes, 24);
      if (!write) reads.set(handle, bytes);
      this.socket.write(head);
      if (write) {
        payload.writeBigUInt64BE(handle, 0);
        this.socket.write(Buffer.from(payload));
      }
    };
    const receive = async () => {
      while (!this.stopped) {
        const reply = await this.read(16);
        const error = reply.readUInt32BE(4);
        const which = reply.readBigUInt64BE(8);
        if (error === 0 && reads.has(which)) await this.read(reads.get(which));
        reads.delete(which);
        this.done += 1;
        send();
      }
    };
    for (let index = 0; index < depth; index += 1) send();
    receive().catch(() => {});
  }

  stop() {
    this.stopped = true;
    this.socket.destroy();
  }
}
