-- Lives change with every step and events when they are sent: room in the page spares the indexes.
alter table lifecycle set (fillfactor = 60);
alter table outbox set (fillfactor = 80);
