-- A machine may have to be stopped before billing can say whether its renewal was charged: whether it ran until then, so that it
-- runs again when it was. Null: it was not stopped for that.
alter table vm_renewal add column resumes boolean;
