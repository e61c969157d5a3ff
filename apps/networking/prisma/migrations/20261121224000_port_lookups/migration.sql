-- Whoever asks what stands on an address or a MAC asks for reserved ones too: without these every claim of a port read all ports.
create index port_by_address on port (vpc_id, address);
create index port_by_mac on port (vpc_id, mac);
